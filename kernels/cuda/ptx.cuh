// Instructions of sm_80 that C++ cannot express: asynchronous copies to shared memory, matrix fragments, and products
// on tensor cores. Fragment layouts are those of the PTX ISA for mma.m16n8k16. Each has a second body for the emulator
// of the tests, which does the same on the CPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace ringtrain::cuda {

#if defined(RINGTRAIN_CUDA_EMULATED)

using cuda_emulator::add_release;
using cuda_emulator::clock_cycles;
using cuda_emulator::cp_async_16;
using cuda_emulator::cp_async_commit;
using cuda_emulator::cp_async_wait;
using cuda_emulator::exp2_approx;
using cuda_emulator::ldmatrix_x4;
using cuda_emulator::ldmatrix_x4_trans;
using cuda_emulator::let_others_run;
using cuda_emulator::mma_m16n8k16_bf16;
using cuda_emulator::shared_address;
using cuda_emulator::stop_kernel;

inline int load_acquire(const int* p) {
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
inline void reduce_add(float* p, float x, float y) {
  atomicAdd(p, x);
  atomicAdd(p + 1, y);
}
inline int count_bits(std::uint32_t x) {
  return __builtin_popcount(x);
}
inline void forget(int&) {}

#else

/// Returns the address of shared memory in its own 32-bit window.
__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

/// Copies 16 bytes, both addresses 16-byte aligned, past L1; they have arrived after the wait. Not valid: writes zeros,
/// and does not read global.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
/// Closes a group of this thread's copies.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most N of this thread's groups are pending.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/// Loads four 8 x 8 matrices of 16-bit elements; lane i names row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/// c[16, 8] += a[16, 16] b[16, 8]: bfloat16 products, float32 sums.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&c)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Returns 2^x to 2 units in the last place; 0 for results below 2^-126.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// A counter in global memory that blocks pass on: data written before an add_release (after a __threadfence of the
/// threads that wrote it) is visible after a load_acquire that returned the new value.
__device__ __forceinline__ int load_acquire(const int* p) {
  int x;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
__device__ __forceinline__ void add_release(int* p, int n) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(p), "r"(n) : "memory");
}

/// Returns the multiprocessor's clock.
__device__ __forceinline__ long long clock_cycles() {
  return clock64();
}
/// For loops that wait for another thread. (An emulated thread only runs then.)
__device__ __forceinline__ void let_others_run() {}
/// Ends the kernel, and all work of the process on this GPU: every later call returns an error.
[[noreturn]] __device__ __forceinline__ void stop_kernel() {
  asm volatile("trap;");
  __builtin_unreachable();
}

/// Adds x to p[0] and y to p[1] in global memory, without returning the result; p is 8-byte aligned.
__device__ __forceinline__ void reduce_add(float* p, float x, float y) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(x), "f"(y) : "memory");
#else
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(p), "f"(x) : "memory");
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(p + 1), "f"(y) : "memory");
#endif
}

__device__ __forceinline__ int count_bits(std::uint32_t x) {
  return __popc(x);
}

/// Hides the origin of x from the compiler. At the top of a loop, values derived from x are then recomputed in each
/// iteration instead of being kept in registers that the loop needs more. It is not an instruction.
__device__ __forceinline__ void forget(int& x) {
  asm volatile("" : "+r"(x));
}

#endif

/// Returns two numbers rounded to bfloat16, the first in the lower half.
__device__ __forceinline__ std::uint32_t rounded_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  std::uint32_t bits;
  std::memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

}  // namespace ringtrain::cuda
