// Sums over tokens, a column at a time, for parameter gradients. Tokens are cut into chunks, depending only on their
// number and the columns'; each chunk's sums go to the context's partial sums, and those are added in a fixed order in
// double. So the same numbers give the same bits on any GPU.
#pragma once

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"

namespace ringtrain::cuda {

/// How T tokens are cut for sums of C columns.
struct TokenChunks {
  std::int64_t tokens;  // of a chunk; the last may have fewer
  unsigned count;
};

/// Returns chunks of at least 8 tokens, at most max_chunks of them, whose partial sums (`tensors` of C floats) fit.
inline TokenChunks chunks_of(std::int64_t T, std::int64_t C, int tensors, std::int64_t max_chunks = 512) {
  const auto room = static_cast<std::int64_t>(Context::partial_sums_bytes / sizeof(float));
  const std::int64_t fit = std::min(max_chunks, room / std::max<std::int64_t>(1, C * tensors));
  ensure(fit > 0, "a row of partial sums fits their memory");
  const std::int64_t tokens = std::max<std::int64_t>(8, (T + fit - 1) / fit);
  return {tokens, blocks_for(T, tokens)};
}

inline constexpr int column_lanes = 32, column_rows = 8;

/// partial[chunk, C] = sums over a chunk's tokens of term.at<W>(t, c). One block for 32 W columns of one chunk.
template <class Term, int W>
__global__ void __launch_bounds__(column_lanes* column_rows)
    column_sums_kernel(const Term term, float* const partial, const std::int64_t T, const std::int64_t C,
                       const std::int64_t tokens) {
  __shared__ float sums[column_rows][column_lanes * W];
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * column_lanes + threadIdx.x) * W;
  const std::int64_t begin = blockIdx.y * tokens, end = min(T, begin + tokens);
  Pack<float, W> sum{};
  if (c < C) {
#pragma unroll 4
    for (std::int64_t t = begin + threadIdx.y; t < end; t += column_rows) {
      const Pack<float, W> added = term.template at<W>(t, c);
#pragma unroll
      for (int w = 0; w < W; ++w) sum.at[w] += added.at[w];
    }
  }
#pragma unroll
  for (int w = 0; w < W; ++w) sums[threadIdx.y][threadIdx.x * W + w] = sum.at[w];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y * column_lanes + threadIdx.x); i < column_lanes * W;
       i += column_lanes * column_rows) {
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * column_lanes * W + i;
    float all = 0;
#pragma unroll
    for (int row = 0; row < column_rows; ++row) all += sums[row][i];
    if (column < C) partial[blockIdx.y * C + column] = all;
  }
}

/// to[C] += the sums of partial[chunks, C] over chunks.
void add_chunks(Context& context, float* to, const float* partial, unsigned chunks, std::int64_t C);

/// to[C] += sums over T tokens of term.at<W>(t, c); by packs of columns if `whole` says that pointers and C allow it.
template <int widest, class Term>
void add_column_sums(Context& context, float* to, std::int64_t T, std::int64_t C, bool whole, const Term& term) {
  if (T == 0 || C == 0 || to == nullptr) return;
  const TokenChunks chunks = chunks_of(T, C, 1);
  auto* const partial = static_cast<float*>(context.partial_sums());
  const dim3 block(column_lanes, column_rows);
  with_packs<widest>(whole, [&]<int W>() {
    launch<column_sums_kernel<Term, W>>(context, dim3(blocks_for(C, column_lanes * W), chunks.count), block, 0, term,
                                        partial, T, C, chunks.tokens);
  });
  add_chunks(context, to, partial, chunks.count, C);
}

}  // namespace ringtrain::cuda
