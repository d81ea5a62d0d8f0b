// The last step of sums over tokens: chunks are added in a fixed order, in double.
#include "kernels/cuda/column_sums.cuh"

namespace ringtrain::cuda {

namespace {

constexpr int chunk_lanes = 32, chunk_rows = 32;

__global__ void __launch_bounds__(chunk_lanes* chunk_rows)
    add_chunks_kernel(float* const to, const float* const partial, const unsigned chunks, const std::int64_t C) {
  __shared__ double sums[chunk_rows][chunk_lanes];
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * chunk_lanes + threadIdx.x;
  double sum = 0;
  if (c < C) {
#pragma unroll 4
    for (unsigned chunk = threadIdx.y; chunk < chunks; chunk += chunk_rows) {
      sum += static_cast<double>(partial[chunk * C + c]);
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= C) return;
  double all = 0;
#pragma unroll
  for (int row = 0; row < chunk_rows; ++row) all += sums[row][threadIdx.x];
  to[c] += static_cast<float>(all);
}

}  // namespace

void add_chunks(Context& context, float* to, const float* partial, unsigned chunks, std::int64_t C) {
  if (to == nullptr) return;  // the gradient of a frozen parameter
  launch<add_chunks_kernel>(context, blocks_for(C, chunk_lanes), dim3(chunk_lanes, chunk_rows), 0, to, partial, chunks,
                            C);
}

}  // namespace ringtrain::cuda
