// Hopper's own instructions (sm_90a) as small device functions: mbarriers, copies by the tensor memory accelerator
// (TMA), setmaxnreg, named barriers, and proxy fences. Those of the tensor cores are in wgmma.cuh. Each has two bodies:
// PTX, and in emulated builds a call of the function with the same name in cuda_emulator. Names follow the PTX ISA,
// which specifies each instruction; "one thread" means that one thread executes it for all.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/ptx.cuh"

namespace ringtrain::cuda::hopper {

/// When the L2 cache may evict the data of a copy: policies as createpolicy.fractional.L2 makes them for all of an
/// access (CUTLASS has the same numbers).
enum class CacheHint : std::uint64_t {
  normal = 0x1000000000000000,
  first = 0x12F0000000000000,
  last = 0x14F0000000000000,
};

#if defined(RINGTRAIN_CUDA_EMULATED)

using cuda_emulator::fence_mbarrier_init;
using cuda_emulator::fence_proxy_async;
using cuda_emulator::fence_proxy_async_global;
using cuda_emulator::mbarrier_arrive;
using cuda_emulator::mbarrier_arrive_expect_tx;
using cuda_emulator::mbarrier_init;
using cuda_emulator::mbarrier_try_wait;
using cuda_emulator::mbarrier_wait;
using cuda_emulator::named_barrier_arrive;
using cuda_emulator::named_barrier_sync;
using cuda_emulator::stmatrix_x4;
using cuda_emulator::tma_prefetch;
using cuda_emulator::tma_store_commit;

inline void tma_load_4d(void* shared, const CUtensorMap* map, std::uint64_t* barrier, int c0, int c1, int c2, int c3,
                        CacheHint) {
  cuda_emulator::tma_load_4d(shared, map, barrier, c0, c1, c2, c3);
}
inline void tma_reduce_add_4d(const CUtensorMap* map, const void* shared, int c0, int c1, int c2, int c3, CacheHint) {
  cuda_emulator::tma_reduce_add_4d(map, shared, c0, c1, c2, c3);
}

/// N: the number of this thread's groups that may still be pending.
template <int N>
void tma_store_wait() {
  cuda_emulator::tma_store_wait<N>();
}
template <int N>
void tma_store_complete() {
  cuda_emulator::tma_store_complete<N>();
}
template <int Registers>
void registers_increase() {
  cuda_emulator::registers_increase<Registers>();
}
template <int Registers>
void registers_decrease() {
  cuda_emulator::registers_decrease<Registers>();
}

#else

/// Initializes a barrier whose phase ends after `arrivals` arrivals and all announced bytes (one thread).
__device__ __forceinline__ void mbarrier_init(std::uint64_t* barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

/// Makes the barriers that this thread has initialized visible to TMA; a __syncthreads must follow.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/// Arrives, and announces `bytes` that copies will transfer in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

/// Returns when the phase with this parity has ended. The phase before the first one counts as ended, with parity 1.
__device__ __forceinline__ void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// Returns whether that phase has ended, after a short wait for it.
__device__ __forceinline__ bool mbarrier_try_wait(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

/// Orders this thread's ordinary writes of shared memory before later reads by the tensor cores and by TMA.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Orders copies to and from global memory with this thread's ordinary accesses to it, such as reading a counter that
/// says that the copies of others are done.
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// Prefetches a tensor map (one thread).
__device__ __forceinline__ void tma_prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Copies the map's box at coordinates (c0 innermost) to shared memory and counts its bytes on barrier; elements
/// outside the tensor become zero (one thread).
__device__ __forceinline__ void tma_load_4d(void* shared, const CUtensorMap* map, std::uint64_t* barrier, int c0,
                                            int c1, int c2, int c3, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(static_cast<std::uint64_t>(hint))
      : "memory");
}

/// Adds the box in shared memory to the tensor in global memory, each element atomically; elements outside the tensor
/// are skipped (one thread). Belongs to the thread's bulk group.
__device__ __forceinline__ void tma_reduce_add_4d(const CUtensorMap* map, const void* shared, int c0, int c1, int c2,
                                                  int c3, CacheHint hint) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group.L2::cache_hint "
      "[%0, {%2, %3, %4, %5}], [%1], %6;" ::"l"(map),
      "r"(shared_address(shared)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(static_cast<std::uint64_t>(hint))
      : "memory");
}

/// Ends the thread's bulk group.
__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Returns when all but the last N bulk groups of this thread have read their shared memory.
template <int N>
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
/// Returns when all but the last N bulk groups of this thread are done, so that it can see what they wrote.
template <int N>
__device__ __forceinline__ void tma_store_complete() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

/// Stores four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8, 16 bytes. r[j]
/// holds row lane / 4, columns 2 * (lane % 4) and the next, of matrix j (a warp).
__device__ __forceinline__ void stmatrix_x4(void* row, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

/// Barrier `id` (1 to 15) among `threads` threads: sync waits for all, arrive only counts.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Changes the number of registers of each thread of this warpgroup (a warpgroup).
template <int Registers>
__device__ __forceinline__ void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

#endif

}  // namespace ringtrain::cuda::hopper
