// RMSNorm and LayerNorm on the GPU. A group of threads (a warp, or a whole block) shares one row and keeps it in
// registers: a row is read once in forward, and once in backward for dx and the parameter gradients together. In
// backward, a group goes through a chunk of tokens and keeps each column's sums; the chunks' sums are then added in
// order. Rows whose width or memory does not allow packs of 16 bytes, and rows wider than 64 KiB in forward or 8K
// elements in backward, are processed by single elements, and read as often as needed.
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/reduce.cuh"

namespace ringtrain::cuda {

namespace {

/// Returns the sums over the group of threads that shares a row: blockDim.x threads, and one group per block unless a
/// group is a warp. `parity` alternates from call to call, so that one barrier per call is enough.
template <int count>
__device__ __forceinline__ void group_sums(float (&x)[count], int parity) {
  __shared__ float of_warp[2][count][32];
#pragma unroll
  for (int k = 0; k < count; ++k) x[k] = warp_sum(x[k]);
  if (blockDim.x == 32) return;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) {
#pragma unroll
    for (int k = 0; k < count; ++k) of_warp[parity][k][warp] = x[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < count; ++k) {
    x[k] = warp_sum(lane < static_cast<int>(blockDim.x) / 32 ? of_warp[parity][k][lane] : 0.0f);
  }
}

/// The packs of a row that this thread has: at most P of them, in registers; P = 0: any number, read when needed.
template <class T, int W, int P>
struct RowPart {
  const T* row;
  Pack<T, W> held[P == 0 ? 1 : P];

  __device__ __forceinline__ void read(const T* from, int packs) {
    row = from;
#pragma unroll
    for (int j = 0; j < P; ++j) {
      const int pack = static_cast<int>(j * blockDim.x + threadIdx.x);
      if (pack < packs) held[j] = load<W>(from + static_cast<std::int64_t>(pack) * W);
    }
  }
  /// Returns the values of the thread's pack j, which is the row's pack `pack`.
  __device__ __forceinline__ Pack<float, W> values(int j, int pack) const {
    if constexpr (P == 0) return widened(load<W>(row + static_cast<std::int64_t>(pack) * W));
    return widened(held[j]);
  }
};

/// Calls body(j, pack) for the thread's packs of a row.
template <int P, class Body>
__device__ __forceinline__ void for_packs(int packs, const Body& body) {
  if constexpr (P == 0) {
    for (int pack = static_cast<int>(threadIdx.x); pack < packs; pack += static_cast<int>(blockDim.x)) body(0, pack);
  } else {
#pragma unroll
    for (int j = 0; j < P; ++j) {
      const int pack = static_cast<int>(j * blockDim.x + threadIdx.x);
      if (pack < packs) body(j, pack);
    }
  }
}

template <class T>
struct Forward {
  T* y;                // [T, C]
  float *mean, *rstd;  // [T]; mean is null for RMSNorm
  const T *x, *w, *b;  // [T, C], [C], [C]
  std::int64_t T_, C;
  float eps;
  float offset;  // of w
};

constexpr int forward_packs = 4, max_forward_threads = 1024, loop_threads = 256;

template <class T, bool layer, int W, int P>
__global__ void __launch_bounds__(P == 0 ? loop_threads : max_forward_threads) forward_kernel(const Forward<T> call) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (t >= call.T_) return;  // a whole warp; with one group per block, never
  const int packs = static_cast<int>(call.C / W);
  const auto width = static_cast<float>(call.C);
  RowPart<T, W, P> x;
  x.read(call.x + t * call.C, packs);
  float mean = 0;
  if constexpr (layer) {
    float sum[1] = {};
    for_packs<P>(packs, [&](int j, int pack) {
      const Pack<float, W> values = x.values(j, pack);
#pragma unroll
      for (int i = 0; i < W; ++i) sum[0] += values.at[i];
    });
    group_sums(sum, 0);
    mean = sum[0] / width;
  }
  // The second pass, over the row in registers, keeps rows with a large mean exact.
  float squares[1] = {};
  for_packs<P>(packs, [&](int j, int pack) {
    const Pack<float, W> values = x.values(j, pack);
#pragma unroll
    for (int i = 0; i < W; ++i) squares[0] += (values.at[i] - mean) * (values.at[i] - mean);
  });
  group_sums(squares, 1);
  const float rstd = 1 / sqrtf(squares[0] / width + call.eps);
  if (threadIdx.x == 0) {
    if constexpr (layer) call.mean[t] = mean;
    call.rstd[t] = rstd;
  }
  for_packs<P>(packs, [&](int j, int pack) {
    const Pack<float, W> values = x.values(j, pack), w = widened(load<W>(call.w + pack * W));
    Pack<float, W> y, b{};
    if constexpr (layer) b = widened(load<W>(call.b + pack * W));
#pragma unroll
    for (int i = 0; i < W; ++i) y.at[i] = (values.at[i] - mean) * rstd * (call.offset + w.at[i]) + b.at[i];
    store(call.y + t * call.C + pack * W, rounded<T>(y));
  });
}

/// Returns the block for rows of `packs` packs if a thread takes up to P: one group, or four groups of a warp.
dim3 groups_for(std::int64_t packs, int P) {
  const unsigned threads = std::max(1U, blocks_for(packs, 32 * P)) * 32;
  return {threads, threads == 32 ? 4U : 1U};
}

template <class T, bool layer>
void forward(Context& context, const Forward<T>& call) {
  constexpr int W = pack_width<T>;
  const std::int64_t packs = call.C / W;
  if (call.C % W == 0 && packs <= max_forward_threads * forward_packs &&
      aligned_to(16, {call.y, call.x, call.w, call.b})) {
    const dim3 block = groups_for(packs, forward_packs);
    launch<forward_kernel<T, layer, W, forward_packs>>(context, blocks_for(call.T_, block.y), block, 0, call);
  } else {
    launch<forward_kernel<T, layer, 1, 0>>(context, blocks_for(call.T_, 1), loop_threads, 0, call);
  }
}

template <class T>
struct Backward {
  T* dx;                     // [T, C]
  float *dw, *db;            // [C]; db is null for RMSNorm
  const T *dy, *x, *w;       // [T, C], [T, C], [C]
  const float *mean, *rstd;  // [T]
  std::int64_t T_, C;
  bool accumulate;
  float offset;  // of w
};

/// What backward reads of a row.
template <class T, bool layer, int W, int P>
struct BackwardRow {
  RowPart<T, W, P> x, dy;
  float rstd, mean;

  __device__ __forceinline__ void read(const Backward<T>& call, std::int64_t t, int packs) {
    x.read(call.x + t * call.C, packs);
    dy.read(call.dy + t * call.C, packs);
    rstd = call.rstd[t];
    mean = layer ? call.mean[t] : 0.0f;
  }
};

/// The most threads of a block: each keeps the sums of W columns, or of two or four times as many.
template <int W>
constexpr int max_backward_threads = 2048 / W;
constexpr std::int64_t max_backward_columns = 8192;
/// The blocks that a multiprocessor runs at a time, limited by registers.
template <bool layer, int W, int P>
constexpr int backward_blocks = P*(8 / W) > 2                ? 1
                                : P == 1 && W == 8 && !layer ? 3
                                                             : 2;

/// Computes dx of the rows of one chunk per group, and partial[2, chunks, C], the chunk's sums of dw and db. With n =
/// (x - mean) rstd, the normalized row, and g = dy w: dx = rstd (g - mean(g) - n mean(g n)), dw = sum of dy n, db = sum
/// of dy; RMSNorm has no means.
template <class T, bool layer, int W, int P>
__global__ void __launch_bounds__(max_backward_threads<W>, backward_blocks<layer, W, P>)
    backward_kernel(const Backward<T> call, float* const partial, const std::int64_t tokens, const unsigned chunks) {
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const std::int64_t begin = group * tokens, end = min(call.T_, begin + tokens);
  const int packs = static_cast<int>(call.C / W);
  const auto width = static_cast<float>(call.C);
  RowPart<T, W, P> w;
  BackwardRow<T, layer, W, P> row, next;
  Pack<float, W> dw[P]{}, db[P]{};
  w.read(call.w, packs);
  if (begin < end) next.read(call, begin, packs);
  for (std::int64_t t = begin; t < end; ++t) {
    row = next;
    if (t + 1 < end) next.read(call, t + 1, packs);  // arrives while this row is computed
    float sums[layer ? 2 : 1] = {};
    for_packs<P>(packs, [&](int j, int pack) {
      const Pack<float, W> xs = row.x.values(j, pack), dys = row.dy.values(j, pack), ws = w.values(j, pack);
#pragma unroll
      for (int i = 0; i < W; ++i) {
        const float n = (xs.at[i] - row.mean) * row.rstd, g = dys.at[i] * (call.offset + ws.at[i]);
        sums[0] += g * n;
        if constexpr (layer) sums[1] += g;
        dw[j].at[i] += dys.at[i] * n;
        if constexpr (layer) db[j].at[i] += dys.at[i];
      }
    });
    group_sums(sums, static_cast<int>(t & 1));
    const float slope = sums[0] / width, offset = layer ? sums[layer ? 1 : 0] / width : 0.0f;
    for_packs<P>(packs, [&](int j, int pack) {
      const Pack<float, W> xs = row.x.values(j, pack), dys = row.dy.values(j, pack), ws = w.values(j, pack);
      T* const to = call.dx + t * call.C + pack * W;
      Pack<float, W> dx{};
      if (call.accumulate) dx = widened(load<W>(to));
#pragma unroll
      for (int i = 0; i < W; ++i) {
        const float n = (xs.at[i] - row.mean) * row.rstd, g = dys.at[i] * (call.offset + ws.at[i]);
        dx.at[i] += row.rstd * (g - offset - n * slope);
      }
      store(to, rounded<T>(dx));
    });
  }
  if (group >= chunks) return;
  for_packs<P>(packs, [&](int j, int pack) {
    store(partial + group * call.C + pack * W, dw[j]);
    if constexpr (layer) store(partial + (chunks + group) * call.C + pack * W, db[j]);
  });
}

/// Computes only dx, for any width and alignment. One block per row.
template <class T, bool layer>
__global__ void __launch_bounds__(loop_threads) backward_loop_kernel(const Backward<T> call) {
  const std::int64_t t = blockIdx.x;
  const auto width = static_cast<float>(call.C);
  const float rstd = call.rstd[t], mean = layer ? call.mean[t] : 0.0f;
  const T *const x = call.x + t * call.C, *const dy = call.dy + t * call.C;
  T* const dx = call.dx + t * call.C;
  float sums[2] = {};
  for (std::int64_t c = threadIdx.x; c < call.C; c += loop_threads) {
    const float g = widened(dy[c]) * (call.offset + widened(call.w[c]));
    sums[0] += g * (widened(x[c]) - mean) * rstd;
    if constexpr (layer) sums[1] += g;
  }
  group_sums(sums, 0);
  const float slope = sums[0] / width, offset = sums[1] / width;
  for (std::int64_t c = threadIdx.x; c < call.C; c += loop_threads) {
    const float g = widened(dy[c]) * (call.offset + widened(call.w[c])), n = (widened(x[c]) - mean) * rstd;
    const float before = call.accumulate ? widened(dx[c]) : 0.0f;
    store(dx + c, rounded<T>(Pack<float, 1>{{before + rstd * (g - offset - n * slope)}}));
  }
}

/// The terms of dw, or of db, for widths that the first kernel does not support.
template <class T, bool layer, bool of_bias>
struct GradientTerm {
  Backward<T> call;
  template <int W>
  __device__ Pack<float, W> at(std::int64_t t, std::int64_t c) const {
    static_assert(W == 1);
    const float dy = widened(call.dy[t * call.C + c]), mean = layer ? call.mean[t] : 0.0f;
    return {{of_bias ? dy : dy * (widened(call.x[t * call.C + c]) - mean) * call.rstd[t]}};
  }
};

template <class T, bool layer, int P>
void launch_backward(Context& context, const Backward<T>& call) {
  constexpr int W = pack_width<T>;
  const dim3 block = groups_for(call.C / W, P);
  constexpr std::int64_t blocks = 128 * backward_blocks<layer, W, P>;  // an H100 runs them all at once
  const TokenChunks chunks = chunks_of(call.T_, call.C, layer ? 2 : 1, blocks * block.y);
  auto* const partial = static_cast<float*>(context.partial_sums());
  launch<backward_kernel<T, layer, W, P>>(context, blocks_for(chunks.count, block.y), block, 0, call, partial,
                                          chunks.tokens, chunks.count);
  add_chunks(context, call.dw, partial, chunks.count, call.C);
  if constexpr (layer) add_chunks(context, call.db, partial + chunks.count * call.C, chunks.count, call.C);
}

template <class T, bool layer>
void backward(Context& context, const Backward<T>& call) {
  constexpr int W = pack_width<T>;
  if (call.T_ == 0 || call.C == 0) return;
  const std::int64_t packs = call.C / W;
  if (call.C % W == 0 && call.C <= max_backward_columns && aligned_to(16, {call.dx, call.dy, call.x, call.w})) {
    if (packs > 2 * max_backward_threads<W>) return launch_backward<T, layer, 4>(context, call);
    if (packs > max_backward_threads<W>) return launch_backward<T, layer, 2>(context, call);
    return launch_backward<T, layer, 1>(context, call);
  }
  // Parameter gradients are computed before dx, because dx may be the memory of dy.
  add_column_sums<1>(context, call.dw, call.T_, call.C, false, GradientTerm<T, layer, false>{call});
  if constexpr (layer) add_column_sums<1>(context, call.db, call.T_, call.C, false, GradientTerm<T, layer, true>{call});
  launch<backward_loop_kernel<T, layer>>(context, blocks_for(call.T_, 1), loop_threads, 0, call);
}

}  // namespace

void norm_forward(Stream& stream, const TensorView& y, const TensorView& mean, const TensorView& rstd,
                  const ConstTensorView& x, const ConstTensorView& w, const ConstTensorView& b, double eps,
                  double offset) {
  dispatch_storage(x.dtype, [&]<class T>() {
    const auto run = mean.empty() ? forward<T, false> : forward<T, true>;
    run(stream.cuda(),
        {y.as<T>(), static_cast<float*>(mean.data), rstd.as<float>(), x.as<T>(), w.as<T>(),
         static_cast<const T*>(b.data), x.dim(0), x.dim(1), static_cast<float>(eps), static_cast<float>(offset)});
  });
}

void norm_backward(Stream& stream, const TensorView& dx, const TensorView& dw, const TensorView& db,
                   const ConstTensorView& dy, const ConstTensorView& x, const ConstTensorView& w,
                   const ConstTensorView& mean, const ConstTensorView& rstd, bool accumulate, double offset) {
  dispatch_storage(x.dtype, [&]<class T>() {
    const auto run = mean.empty() ? backward<T, false> : backward<T, true>;
    run(stream.cuda(), {dx.as<T>(), dw.as<float>(), db.as<float>(), dy.as<T>(), x.as<T>(), w.as<T>(),
                        static_cast<const float*>(mean.data), rstd.as<float>(), x.dim(0), x.dim(1), accumulate,
                        static_cast<float>(offset)});
  });
}

}  // namespace ringtrain::cuda
