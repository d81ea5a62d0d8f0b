// The last step of a sum over a tensor: its pieces' sums, by one block.
#include "kernels/cuda/reduce.cuh"

namespace ringtrain::cuda {

namespace {

__global__ void __launch_bounds__(tree_threads)
    add_pieces_kernel(double* const result, const double* const sums, const int pieces, const bool accumulate) {
  double sum = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < pieces; i += tree_threads) sum += sums[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result = accumulate ? *result + sum : sum;
}

}  // namespace

void add_pieces(Context& context, double* result, const double* sums, int pieces, bool accumulate) {
  launch<add_pieces_kernel>(context, 1, tree_threads, 0, result, sums, pieces, accumulate);
}

}  // namespace ringtrain::cuda
