// The functions of the emulator that device code for Hopper calls: one for each PTX wrapper of kernels/cuda/hopper,
// with the same name and signature. A device with a compute capability below 90 refuses them.
//
// Copies by TMA and in bulk are as slow as possible: a load lands when no thread of the block can continue without it;
// a store or reduction reads shared memory when its thread waits for that, and writes when the thread waits for
// completion (or at the end of the block). With CopyLanding::early, all is done at once. The operands of wgmma are
// read, and its sums are available, when the warpgroup waits; until then, the registers d are poisoned.
#pragma once

#include <cstdint>
#include <source_location>

#include "cuda.h"

namespace cuda_emulator {

using Where = std::source_location;

// mbarriers. A phase ends when all arrivals and all announced bytes have arrived.
void mbarrier_init(std::uint64_t* barrier, std::uint32_t arrivals, Where where = Where::current());
void fence_mbarrier_init();
void mbarrier_arrive(std::uint64_t* barrier, Where where = Where::current());
void mbarrier_arrive_expect_tx(std::uint64_t* barrier, std::uint32_t bytes, Where where = Where::current());
/// Returns when the phase with this parity has ended; the phase before the first one counts as ended, with parity 1.
void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity, Where where = Where::current());
/// Returns whether it has ended, after waiting for as long as any other thread of the block can continue.
bool mbarrier_try_wait(std::uint64_t* barrier, std::uint32_t parity, Where where = Where::current());

void fence_proxy_async();
inline void fence_proxy_async_global() {}

// Tiles by TMA; c0 is the innermost coordinate. shared: aligned to 128 bytes.
void tma_prefetch(const CUtensorMap* map);
void tma_load_4d(void* shared, const CUtensorMap* map, std::uint64_t* barrier, int c0, int c1, int c2, int c3);
/// Adds the box to the tensor, which has floats.
void tma_reduce_add_4d(const CUtensorMap* map, const void* shared, int c0, int c1, int c2, int c3);

// Bulk groups of reductions, separate for each thread.
void tma_store_commit();
void bulk_wait_read(int groups);
void bulk_wait_complete(int groups);
/// Returns when all but the newest N groups have read their shared memory (.read).
template <int N>
void tma_store_wait() {
  bulk_wait_read(N);
}
/// Returns when all but the newest N groups are done.
template <int N>
void tma_store_complete() {
  bulk_wait_complete(N);
}

/// stmatrix .m8n8.x4 .b16: lane l gives the address of row l % 8 of matrix l / 8, and holds elements 2 (l % 4) and + 1
/// of row l / 4 of each matrix.
void stmatrix_x4(void* row, const std::uint32_t (&r)[4], Where where = Where::current());

// wgmma. swizzle: the descriptor's code; only 1, the swizzle of 128 bytes, is emulated.
std::uint64_t wgmma_descriptor(const void* shared, std::uint32_t leading_bytes, std::uint32_t stride_bytes,
                               int swizzle);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait_groups(int groups, Where where);
template <int N>
void wgmma_wait(Where where = Where::current()) {
  wgmma_wait_groups(N, where);
}

/// A product issued by a thread: d (n / 2 floats of the thread) += a b.
struct WgmmaIssue {
  int n;
  bool transpose_a, transpose_b, accumulate, a_in_registers;
  std::uint64_t a_descriptor, b_descriptor;
  std::uint32_t a[4];
};
void wgmma_issue(const WgmmaIssue& issue, float* d);

/// d[64, N] += a[64, 16] b[16, N]. Transpose: the operand is MN-major. Thread l of warp w has in d[4 j + i] the sum of
/// row 16 w + l / 4 + 8 (i / 2), column 8 j + 2 (l % 4) + i % 2.
template <int N, bool TransposeA, bool TransposeB>
void wgmma_ss(float (&d)[N / 2], std::uint64_t a, std::uint64_t b, bool accumulate) {
  static_assert(N >= 8 && N <= 256 && N % 8 == 0);
  wgmma_issue({N, TransposeA, TransposeB, accumulate, false, a, b, {}}, d);
}
/// a is in registers: as in mma.m16n8k16, each warp has its 16 rows.
template <int N, bool TransposeB>
void wgmma_rs(float (&d)[N / 2], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulate) {
  static_assert(N >= 8 && N <= 256 && N % 8 == 0);
  wgmma_issue({N, false, TransposeB, accumulate, true, 0, b, {a[0], a[1], a[2], a[3]}}, d);
}

// setmaxnreg. A block begins with the number of registers per thread that lets one block run on a multiprocessor, like
// kernels with __launch_bounds__(threads, 1); an increase waits until others have released enough.
void set_registers(int registers, bool increase, Where where);
template <int Registers>
void registers_increase(Where where = Where::current()) {
  static_assert(Registers >= 24 && Registers <= 256 && Registers % 8 == 0);
  set_registers(Registers, true, where);
}
template <int Registers>
void registers_decrease(Where where = Where::current()) {
  static_assert(Registers >= 24 && Registers <= 256 && Registers % 8 == 0);
  set_registers(Registers, false, where);
}

}  // namespace cuda_emulator
