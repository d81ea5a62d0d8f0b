// Sums over a warp, a block, and a whole tensor, and maxima over a warp. All are fixed trees: the same numbers give the
// same bits on any GPU.
#pragma once

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"

namespace ringtrain::cuda {

/// Returns the sum over the warp's 32 lanes, the same bits in each.
template <class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffU, x, lanes);
  return x;
}

/// Returns the largest over the warp's 32 lanes, in each.
__device__ __forceinline__ float warp_maximum(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, lanes));
  return x;
}

/// Returns, in thread 0, the sum over a one-dimensional block with a multiple of 32 threads.
template <class T>
__device__ __forceinline__ T block_sum(T x) {
  __shared__ T of_warp[32];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  x = warp_sum(x);
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  if (warp == 0) x = warp_sum(lane < warps ? of_warp[lane] : T{0});
  __syncthreads();
  return x;
}

inline constexpr int tree_threads = 256;

/// sums[piece] = the sum in double of term.at<W>(i) over the piece's elements. One block per piece.
template <class Term, int W>
__global__ void __launch_bounds__(tree_threads)
    piece_sums_kernel(const Term term, const std::int64_t n, const std::int64_t piece, double* const sums) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * piece, end = min(n, begin + piece);
  const std::int64_t whole = begin + (end - begin) / W * W;
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x * W; i < whole; i += tree_threads * W) sum += term.template at<W>(i);
  if (whole + threadIdx.x < end) sum += term.template at<1>(whole + threadIdx.x);
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/// result = or += the sum of sums[pieces]. One block.
void add_pieces(Context& context, double* result, const double* sums, int pieces, bool accumulate);

/// result = or += the sum over i < n of term.at<W>(i), by packs if `whole` says that pointers allow it, in a tree that
/// depends only on n: at most 2048 pieces, each a multiple of 4096 elements.
template <int widest, class Term>
void sum_over_tree(Context& context, double* result, std::int64_t n, bool whole, bool accumulate, const Term& term) {
  constexpr std::int64_t max_pieces = 2048, grain = 4096;
  static_assert(max_pieces * sizeof(double) <= Context::partial_sums_bytes);
  const std::int64_t piece = std::max<std::int64_t>(1, (n + max_pieces * grain - 1) / (max_pieces * grain)) * grain;
  const unsigned pieces = blocks_for(n, piece);
  auto* const sums = static_cast<double*>(context.partial_sums());
  with_packs<widest>(whole, [&]<int W>() {
    launch<piece_sums_kernel<Term, W>>(context, pieces, tree_threads, 0, term, n, piece, sums);
  });
  add_pieces(context, result, sums, static_cast<int>(pieces), accumulate);
}

}  // namespace ringtrain::cuda
