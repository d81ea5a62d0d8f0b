// The functions of the emulator that device code calls directly: its dynamic shared memory, and one function for each
// PTX wrapper of kernels/cuda/ptx.cuh, with the same name and signature.
#pragma once

#include <cstdint>
#include <source_location>

#include "cuda_emulator_hopper.h"

namespace cuda_emulator {

using Where = std::source_location;

/// Returns the block's dynamic shared memory: exactly the launch's size, aligned to 1024 bytes, poisoned (all bits set:
/// NaN as float and bfloat16) before each block.
void* dynamic_shared_memory();

/// Returns the address in the 32-bit window of shared memory, and the inverse. The low 10 bits are those of the
/// pointer.
std::uint32_t shared_address(const void* shared);
void* shared_pointer(std::uint32_t address);

/// cp.async.cg of 16 bytes, both sides aligned to 16. Not valid: zeros, and global is not read.
void cp_async_16(void* shared, const void* global, bool valid);
void cp_async_commit();
/// Returns when all but the newest `groups` committed groups of this thread have landed.
void cp_async_wait_groups(int groups);
template <int N>
void cp_async_wait() {
  cp_async_wait_groups(N);
}

// ldmatrix .m8n8 .b16: lane l gives the address of row l % 8 of matrix l / 8. Without trans lane l
// receives the elements 2 (l % 4) and + 1 of row l / 4 of each matrix; with trans those of column l / 4.
void ldmatrix_x4(std::uint32_t (&r)[4], const void* row, Where where = Where::current());
void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row, Where where = Where::current());

/// mma.sync.m16n8k16.row.col.f32.bf16.bf16.f32: c += a b, summed in float in the order of k.
void mma_m16n8k16_bf16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                       Where where = Where::current());

/// ld.acquire.gpu and red.release.gpu.add of a counter with which threads or blocks wait for each other. A thread that
/// loads in a loop continues when no other thread of its block can; a block that waits for one that runs later is a
/// deadlock.
int load_acquire(const int* p, Where where = Where::current());
void add_release(int* p, int n);

/// A clock that stops while any thread of the block can continue, and otherwise advances by stall_cycles: so waits that
/// use this clock do not time out while the awaited event can still occur.
inline constexpr long long stall_cycles = 1LL << 32;
long long clock_cycles();
/// For loops that wait: continues when no other thread of the block can.
void let_others_run(Where where = Where::current());
/// __trap with the response of hardware: the device is lost, and this and every later call that concerns it returns
/// cudaErrorLaunchFailure.
[[noreturn]] void stop_kernel();

/// ex2.approx.ftz.f32
float exp2_approx(float x);

/// bar.sync and bar.arrive: barriers 1 to 15 (0 is __syncthreads'), for `threads` threads of the block, whole warps.
void named_barrier_sync(int id, int threads, Where where = Where::current());
void named_barrier_arrive(int id, int threads, Where where = Where::current());

}  // namespace cuda_emulator
