// Table look-up on the GPU. In backward, the tokens are sorted by id, stably, 256K at a time; then a warp takes a strip
// of columns of one table row and adds its tokens' gradients in their order, as the CPU does, so no two warps add to
// one element. Cost: 3 launches for each 8 bits of the number of rows (about 10 microseconds), after which dy is read
// once and each row that occurs is read and written once. The most frequent row is a lower bound: its tokens are one
// chain of additions, of which 8 reads are in flight at a time (about 1 ms for 10,000 tokens of one id).
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sort.cuh"

namespace ringtrain::cuda {

namespace {

constexpr int max_row_threads = 256;

/// blockDim.x threads share a row; a block has blockDim.y rows.
template <class T, int W>
__global__ void __launch_bounds__(max_row_threads)
    look_up_kernel(T* const y,                     // [tokens, C]
                   const std::int32_t* const ids,  // [tokens]
                   const T* const table,           // [rows, C]
                   const std::int64_t tokens, const std::int64_t C, const bool accumulate) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (t >= tokens) return;
  const T* const from = table + ids[t] * C;
  T* const to = y + t * C;
  for (std::int64_t c = threadIdx.x * W; c < C; c += blockDim.x * W) {
    Pack<T, W> x = load<W>(from + c);
    if (accumulate) {
      Pack<Compute<T>, W> sum = widened(load<W>(to + c));
      const Pack<Compute<T>, W> added = widened(x);
#pragma unroll
      for (int w = 0; w < W; ++w) sum.at[w] += added.at[w];
      x = rounded<T>(sum);
    }
    store(to + c, x);
  }
}

constexpr int segment_warps = 8, reads_under_way = 8;

/// Adds dy[tokens.positions[i]] for all i of one id, in their order, to that id's row of dtable. There is one warp for
/// each i; only those at the first i of an id work. blockIdx.y: a strip of 32 W columns.
template <class T, int W>
__global__ void __launch_bounds__(32 * segment_warps)
    add_rows_kernel(float* const dtable,  // [rows, C]
                    const T* const dy,    // [n, C]
                    const Sorted tokens, const int n, const std::int64_t C) {
  int i = static_cast<int>(blockIdx.x * segment_warps + threadIdx.y);
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.y) * 32 + threadIdx.x) * W;
  if (i >= n || c >= C) return;
  const std::uint32_t id = tokens.keys[i];
  if (i > 0 && tokens.keys[i - 1] == id) return;
  Pack<float, W> sum = load<W>(dtable + id * C + c);
  for (bool full_round = true; full_round; i += reads_under_way) {
    int count = 0;  // the number of the next indices with this id
#pragma unroll
    for (int u = 0; u < reads_under_way; ++u) {
      if (i + u < n && tokens.keys[i + u] == id) count = u + 1;
    }
    Pack<T, W> x[reads_under_way];
#pragma unroll
    for (int u = 0; u < reads_under_way; ++u) {
      if (u < count) x[u] = load<W>(dy + tokens.positions[i + u] * C + c);
    }
#pragma unroll
    for (int u = 0; u < reads_under_way; ++u) {
      if (u >= count) continue;
      const Pack<float, W> values = widened(x[u]);
#pragma unroll
      for (int w = 0; w < W; ++w) sum.at[w] += values.at[w];
    }
    full_round = count == reads_under_way;
  }
  store(dtable + id * C + c, sum);
}

}  // namespace

void embedding_forward(Stream& stream, const TensorView& y, const ConstTensorView& ids, const ConstTensorView& table,
                       bool accumulate) {
  const std::int64_t tokens = ids.numel(), C = table.dim(1);
  dispatch_storage(y.dtype, [&]<class T>() {
    with_packs<pack_width<T>>(C % pack_width<T> == 0 && aligned_to(16, {y.data, table.data}), [&]<int W>() {
      const auto across = static_cast<unsigned>(std::clamp<std::int64_t>((C / W + 31) / 32 * 32, 32, max_row_threads));
      const dim3 block(across, max_row_threads / across);
      launch<look_up_kernel<T, W>>(stream.cuda(), blocks_for(tokens, block.y), block, 0, y.as<T>(),
                                   ids.as<std::int32_t>(), table.as<T>(), tokens, C, accumulate);
    });
  });
}

void embedding_backward(Stream& stream, const TensorView& dtable, const ConstTensorView& ids,
                        const ConstTensorView& dy) {
  const std::int64_t tokens = ids.numel(), rows = dtable.dim(0), C = dtable.dim(1);
  if (C == 0) return;
  dispatch_storage(dy.dtype, [&]<class T>() {
    const bool whole = C % pack_width<T> == 0 && aligned_to(16, {dtable.data, dy.data});
    for (std::int64_t begin = 0; begin < tokens; begin += max_sorted) {
      const auto n = static_cast<int>(std::min<std::int64_t>(max_sorted, tokens - begin));
      const Sorted sorted = sort(stream.cuda(), ids.as<std::int32_t>() + begin, n, rows);
      with_packs<pack_width<T>>(whole, [&]<int W>() {
        launch<add_rows_kernel<T, W>>(stream.cuda(), dim3(blocks_for(n, segment_warps), blocks_for(C, 32 * W)),
                                      dim3(32, segment_warps), 0, dtable.as<float>(), dy.as<T>() + begin * C, sorted, n,
                                      C);
      });
    }
  });
}

}  // namespace ringtrain::cuda
