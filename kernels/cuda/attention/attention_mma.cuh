// Code that the tensor-core kernels of attention share: tiles in shared memory, fragments read from them, packing.
//
// A tile consists of rows of 16-byte chunks (8 elements). Chunk c of row r is stored at chunk c ^ (r % 8) of that row
// (c ^ (r / 2 % 4) if a row has 4 chunks). Shared memory serves 8 chunks at once if they are in 8 different columns of
// 16 bytes, of the 8 that 32 banks form. So every access here is free of conflicts: ldmatrix reads the same chunk of 8
// adjacent rows, which the exclusive-or moves to 8 columns (for rows of 4 chunks, two rows form a line; r / 2 % 4
// distinguishes the lines and r % 2 the halves); cp.async writes whole lines; and 4-byte stores of an accumulator touch
// one chunk of 8 rows, again in 8 columns.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/ptx.cuh"

namespace ringtrain::cuda {

using bf16 = __nv_bfloat16;

/// Returns the position of element 8 * chunk of a row, in elements, of a tile whose rows have `Columns` elements.
template <int Columns>
__device__ __forceinline__ int swizzled_offset(int row, int chunk) {
  static_assert(Columns >= 32 && Columns % 32 == 0);
  if constexpr (Columns == 32) return row * 32 + ((chunk ^ ((row >> 1) & 3)) << 3);
  return row * Columns + ((chunk ^ (row & 7)) << 3);
}

/// Starts copying Rows rows of Columns elements, `stride` elements apart in global memory; rows from `valid` on become
/// zero and are not read. Called by all Threads threads of the block.
template <int Rows, int Columns, int Threads>
__device__ __forceinline__ void copy_tile(bf16* tile, const bf16* global, std::int64_t stride, int valid) {
  constexpr int chunks = Columns / 8, rows_at_once = Threads / chunks;
  static_assert(Threads % chunks == 0 && Rows % rows_at_once == 0);
  const int row = static_cast<int>(threadIdx.x) / chunks, chunk = static_cast<int>(threadIdx.x) % chunks;
  const bf16* from = global + row * stride + 8 * chunk;
#pragma unroll
  for (int i = 0; i < Rows / rows_at_once; ++i) {
    const int at = row + i * rows_at_once;
    cp_async_16(tile + swizzled_offset<Columns>(at, chunk), from, at < valid);
    from += rows_at_once * stride;
  }
}

// Fragments of m16n8k16, as numbered in the PTX ISA: of the accumulator, lane l holds columns 2 (l % 4) and + 1 of rows
// l / 4 (elements 0, 1) and l / 4 + 8 (2, 3). In each of the four loads below, lane l names one row of 8 elements, of
// 16 rows by 16 elements that begin at `row`, a multiple of 8, and at `chunk`, an even number. So both can be left out
// of the lane's own position, which is one register for a whole kernel, and added with one exclusive-or.
template <int Columns>
__device__ __forceinline__ const bf16* named(const bf16* tile, int row, int chunk, int lane_row, int lane_chunk) {
  return tile + row * Columns + (swizzled_offset<Columns>(lane_row, lane_chunk) ^ (chunk << 3));
}

/// a: the tile's rows are the rows of a.
template <int Columns>
__device__ __forceinline__ void load_a(std::uint32_t (&a)[4], const bf16* tile, int row, int chunk, int lane) {
  ldmatrix_x4(a, named<Columns>(tile, row, chunk, lane % 16, lane / 16));
}
/// a transposed: the tile's rows are the columns of a.
template <int Columns>
__device__ __forceinline__ void load_a_transposed(std::uint32_t (&a)[4], const bf16* tile, int row, int chunk,
                                                  int lane) {
  ldmatrix_x4_trans(a, named<Columns>(tile, row, chunk, lane / 16 * 8 + lane % 8, lane / 8 % 2));
}
/// b of two adjacent products, (b[0], b[1]) and (b[2], b[3]): the tile's rows are the columns of b.
template <int Columns>
__device__ __forceinline__ void load_b(std::uint32_t (&b)[4], const bf16* tile, int row, int chunk, int lane) {
  ldmatrix_x4(b, named<Columns>(tile, row, chunk, lane / 16 * 8 + lane % 8, lane / 8 % 2));
}
/// The same transposed: the tile's rows are the rows of b.
template <int Columns>
__device__ __forceinline__ void load_b_transposed(std::uint32_t (&b)[4], const bf16* tile, int row, int chunk,
                                                  int lane) {
  ldmatrix_x4_trans(b, named<Columns>(tile, row, chunk, lane % 16, lane / 16));
}

/// c0, c1: adjacent products of one a with both halves of b.
__device__ __forceinline__ void multiply_pair(float (&c0)[4], float (&c1)[4], const std::uint32_t (&a)[4],
                                              const std::uint32_t (&b)[4]) {
  const std::uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
  mma_m16n8k16_bf16(c0, a, left);
  mma_m16n8k16_bf16(c1, a, right);
}

/// Packs accumulators of 16 rows by 16 columns as the a of the next product.
__device__ __forceinline__ void pack_a(std::uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = rounded_pair(left[0], left[1]);
  a[1] = rounded_pair(left[2], left[3]);
  a[2] = rounded_pair(right[0], right[1]);
  a[3] = rounded_pair(right[2], right[3]);
}

}  // namespace ringtrain::cuda
