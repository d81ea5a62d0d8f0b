// Hopper's tensor core instruction, wgmma.mma_async, for bfloat16 with float32 sums: d[64, N] += a[64, 16] b[16, N], by
// one warpgroup. a comes from shared memory or registers, b from shared memory, described as below.
//
// Fragments (PTX ISA, "Register Fragments" of wgmma.m64nNk16): warp w of the warpgroup has rows 16 w to 16 w + 15. With
// g = lane / 4 and t = lane % 4, d[4 j + i] is row g + 8 (i / 2), column 8 j + 2 t + i % 2. So the sums of columns 16 k
// to 16 k + 15, rounded in pairs, are the a fragment of step k of a following product.
//
// In shared memory, tiles have the layout that TMA writes with 128-byte swizzle: blocks of 64 columns, whose rows have
// 128 bytes; 16-byte chunk c of row r is stored at chunk c ^ (r % 8). A block starts at a multiple of 1024 bytes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention/hopper/descriptor.h"
#include "kernels/cuda/attention/hopper/ptx_hopper.cuh"

namespace ringtrain::cuda::hopper {

#if defined(RINGTRAIN_CUDA_EMULATED)

using cuda_emulator::wgmma_commit;
using cuda_emulator::wgmma_fence;

inline std::uint64_t wgmma_descriptor(const void* shared, std::uint32_t leading_bytes, std::uint32_t stride_bytes,
                                      int swizzle) {
  cuda_emulator::wgmma_descriptor(shared, leading_bytes, stride_bytes, swizzle);  // checks them
  return descriptor_bits(shared_address(shared), leading_bytes, stride_bytes, swizzle);
}
template <int N>
void wgmma_wait() {
  cuda_emulator::wgmma_wait<N>();
}
template <int N>
void wgmma_wait_behind(std::uint32_t, std::uint32_t*) {
  cuda_emulator::wgmma_wait<N>();
}
template <int N>
void wgmma_hold(float (&)[N]) {}
template <int N, bool TransposeA, bool TransposeB>
void wgmma_ss(float (&d)[N / 2], std::uint64_t a, std::uint64_t b, bool accumulate) {
  cuda_emulator::wgmma_ss<N, TransposeA, TransposeB>(d, a, b, accumulate);
}
template <bool TransposeA, bool TransposeB>
void wgmma_ss_first(float (&d)[32], std::uint64_t a, std::uint64_t b) {
  cuda_emulator::wgmma_ss<64, TransposeA, TransposeB>(d, a, b, false);
}
template <int N, bool TransposeB>
void wgmma_rs(float (&d)[N / 2], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulate) {
  cuda_emulator::wgmma_rs<N, TransposeB>(d, a, b, accumulate);
}

#else

/// Returns the descriptor of a matrix in shared memory. leading_bytes, stride_bytes: as in the canonical layouts of the
/// PTX ISA, see below.
__device__ __forceinline__ std::uint64_t wgmma_descriptor(const void* shared, std::uint32_t leading_bytes,
                                                          std::uint32_t stride_bytes, int swizzle) {
  return descriptor_bits(shared_address(shared), leading_bytes, stride_bytes, swizzle);
}

/// Required before the first product, and after other writes to registers that products read or add to.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Ends a group of products.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Returns when all but the last N groups are done; wgmma_hold must follow for registers that are then read.
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/// The same, but after the arithmetic that produced `bits`, any number except 2^32 - 1. The assembler considers a long
/// wait and the arithmetic before it independent, so it moves a plain wait up, before the arithmetic that should
/// overlap with the products. It does not move the wait across a store, so this function has a store to *never, in
/// shared memory, that is never executed.
template <int N>
__device__ __forceinline__ void wgmma_wait_behind(std::uint32_t bits, std::uint32_t* never) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.u32 p, %0, 0xFFFFFFFF;\n@p st.shared.u32 [%1], %0;\n"
      "wgmma.wait_group.sync.aligned %2;\n}" ::"r"(bits),
      "r"(shared_address(never)), "n"(N)
      : "memory");
}
/// Keeps the compiler from reading d before this point: it does not know that products end later.
template <int N>
__device__ __forceinline__ void wgmma_hold(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define RINGTRAIN_WGMMA_REGISTERS_64                                        \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
// The sums from d[i], as an instruction's operands; how: reads or writes.
#define RINGTRAIN_WGMMA_SUMS_8(how, i) \
  how(d[i]), how(d[i + 1]), how(d[i + 2]), how(d[i + 3]), how(d[i + 4]), how(d[i + 5]), how(d[i + 6]), how(d[i + 7])
#define RINGTRAIN_WGMMA_SUMS_32(how, i)                                                                    \
  RINGTRAIN_WGMMA_SUMS_8(how, i), RINGTRAIN_WGMMA_SUMS_8(how, i + 8), RINGTRAIN_WGMMA_SUMS_8(how, i + 16), \
      RINGTRAIN_WGMMA_SUMS_8(how, i + 24)
#define RINGTRAIN_WGMMA_REGISTERS_128                                                \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

/// Both operands are in shared memory. Transpose: the operand's rows (a) or columns (b) are contiguous, instead of the
/// 16 elements of the sum.
template <int N, bool TransposeA, bool TransposeB>
__device__ __forceinline__ void wgmma_ss(float (&d)[N / 2], std::uint64_t a, std::uint64_t b, bool accumulate) {
  static_assert(N == 64 || N == 128);
  if constexpr (N == 64) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " RINGTRAIN_WGMMA_REGISTERS_64
        ", %32, %33, p, 1, 1, %35, %36;\n}"
        : RINGTRAIN_WGMMA_SUMS_32("+f", 0)
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(int{TransposeA}), "n"(int{TransposeB}));
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " RINGTRAIN_WGMMA_REGISTERS_128
        ", %64, %65, p, 1, 1, %67, %68;\n}"
        : RINGTRAIN_WGMMA_SUMS_32("+f", 0), RINGTRAIN_WGMMA_SUMS_32("+f", 32)
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(int{TransposeA}), "n"(int{TransposeB}));
  }
}

/// a is in registers.
template <int N, bool TransposeB>
__device__ __forceinline__ void wgmma_rs(float (&d)[N / 2], const std::uint32_t (&a)[4], std::uint64_t b,
                                         bool accumulate) {
  static_assert(N == 64 || N == 128);
  if constexpr (N == 64) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " RINGTRAIN_WGMMA_REGISTERS_64
        ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
        : RINGTRAIN_WGMMA_SUMS_32("+f", 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(int{TransposeB}));
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " RINGTRAIN_WGMMA_REGISTERS_128
        ", {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
        : RINGTRAIN_WGMMA_SUMS_32("+f", 0), RINGTRAIN_WGMMA_SUMS_32("+f", 32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(int{TransposeB}));
  }
}

/// d[64, 64] = a[64, 16] b[16, 64], whatever d contained: no registers need to be kept for it before this call.
template <bool TransposeA, bool TransposeB>
__device__ __forceinline__ void wgmma_ss_first(float (&d)[32], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " RINGTRAIN_WGMMA_REGISTERS_64
      ", %32, %33, p, 1, 1, %34, %35;\n}"
      : RINGTRAIN_WGMMA_SUMS_32("=f", 0)
      : "l"(a), "l"(b), "n"(int{TransposeA}), "n"(int{TransposeB}));
}

#undef RINGTRAIN_WGMMA_REGISTERS_64
#undef RINGTRAIN_WGMMA_SUMS_8
#undef RINGTRAIN_WGMMA_REGISTERS_128
#undef RINGTRAIN_WGMMA_SUMS_32

#endif

/// Returns the descriptor of an operand whose 16 elements of the sum are contiguous (K-major): rows (a) or columns (b)
/// are the tile's rows, and the sum runs along its columns. Groups of 8 rows are 1024 bytes apart; the leading offset
/// is ignored. A step of 16 advances 32 bytes inside a block of 64 columns: along(descriptor, 32 * step).
__device__ __forceinline__ std::uint64_t sum_along_columns(const void* tile) {
  return wgmma_descriptor(tile, 16, 1024, swizzle_128_bytes);
}

/// Returns the descriptor of an operand whose rows (a) or columns (b) are contiguous (MN-major): the sum runs along the
/// tile's rows, groups of 8 of them 1024 bytes apart; blocks of 64 columns are block_bytes apart. A step of 16 rows
/// advances 2048 bytes.
__device__ __forceinline__ std::uint64_t sum_along_rows(const void* tile, std::uint32_t block_bytes) {
  return wgmma_descriptor(tile, block_bytes, 1024, swizzle_128_bytes);
}

/// Returns the descriptor of the operand `bytes` further on (the address field cannot overflow: it spans 256 KiB).
__device__ __forceinline__ std::uint64_t along(std::uint64_t descriptor, std::uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

}  // namespace ringtrain::cuda::hopper
