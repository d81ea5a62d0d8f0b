// Softmax cross-entropy on the GPU: one block per row, which is read once for the maximum and the sum of exponentials
// (updated together: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018) and once more, from the
// L2 cache, for the gradient, which replaces it. Rows need no alignment: elements before the first 16-byte boundary and
// after the last one are processed one by one. The losses' weighted sum is computed in double in a fixed tree.
#include <cfloat>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tanh.cuh"

namespace ringtrain::cuda {

namespace {

/// The rows that a GPU processes at a time should stay in its L2 cache (50 MB on an H100), so that each is read from
/// memory once. So a multiprocessor takes only one row that is wider than this, with more threads; to keep other blocks
/// away, its block reserves shared memory.
constexpr std::size_t wide_row_bytes = 128 << 10, reserved_bytes = 116 << 10;
constexpr int row_threads = 512, wide_row_threads = 1024;
constexpr int packs_under_way = 4;
constexpr float log2_e = 1.4426950408889634f;

/// exp(x - shift), for a difference that is not positive.
__device__ __forceinline__ float exponential(float x, float shift) {
  return exp2f((x - shift) * log2_e);
}

/// The largest of some numbers and the sum of exp(x - largest); a NaN among them makes the sum NaN. Without numbers:
/// {-FLT_MAX, 0}, so that no difference is that of two infinities.
struct Softmax {
  float largest = -FLT_MAX, sum = 0;

  template <int W>
  __device__ __forceinline__ void take(const Pack<float, W>& x) {
    float above = largest;
#pragma unroll
    for (int w = 0; w < W; ++w) above = fmaxf(above, x.at[w]);
    float added = 0;
#pragma unroll
    for (int w = 0; w < W; ++w) added += exponential(x.at[w], above);
    sum = fmaf(sum, exponential(largest, above), added);
    largest = above;
  }
};

/// A row cut into the elements before its first 16-byte boundary, whole packs, and the elements after them.
template <class T, int threads>
struct Row {
  static constexpr int W = pack_width<T>;
  T* data;
  int V, before, packs;
  __device__ Row(T* row, int columns) : data(row), V(columns) {
    const auto beyond = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
    before = min((W - beyond) % W, V);
    packs = (V - before) / W;
  }
  /// Returns the thread's element outside the packs, or -1: there are fewer than 2 W of them.
  __device__ int single() const {
    const int i = static_cast<int>(threadIdx.x);
    if (i < before) return i;
    const int after = i + packs * W;
    return after < V ? after : -1;
  }
  __device__ T* pack(int index) const { return data + before + index * W; }
};

/// Calls body(p, pack) for the thread's packs; some of their loads are in flight at the same time.
template <class T, int threads, class Body>
__device__ __forceinline__ void for_packs(const Row<T, threads>& row, const Body& body) {
  constexpr int W = pack_width<T>;
  int p = static_cast<int>(threadIdx.x);
  for (; p + (packs_under_way - 1) * threads < row.packs; p += packs_under_way * threads) {
    Pack<T, W> x[packs_under_way];
#pragma unroll
    for (int u = 0; u < packs_under_way; ++u) x[u] = load<W>(row.pack(p + u * threads));
#pragma unroll
    for (int u = 0; u < packs_under_way; ++u) body(p + u * threads, x[u]);
  }
  for (; p < row.packs; p += threads) body(p, load<W>(row.pack(p)));
}

template <class T, int threads>
__device__ void fill_with_zeros(const Row<T, threads>& row) {
  Pack<T, pack_width<T>> zeros;
#pragma unroll
  for (int w = 0; w < pack_width<T>; ++w) zeros.at[w] = T(0.0f);
  if (row.single() >= 0) row.data[row.single()] = T(0.0f);
  for (int p = static_cast<int>(threadIdx.x); p < row.packs; p += threads) store(row.pack(p), zeros);
}

/// The values of the block's whole row; the sum is in double.
struct RowSoftmax {
  float largest;
  double sum;
};
template <class T, int threads>
__device__ RowSoftmax softmax_of(const Row<T, threads>& row) {
  Softmax of_thread;
  if (row.single() >= 0) of_thread.take(widened(load<1>(row.data + row.single())));
  for_packs(row, [&](int, const Pack<T, pack_width<T>>& x) { of_thread.take(widened(x)); });

  __shared__ float maxima[threads / 32];
  __shared__ double sums[threads / 32];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const float of_warp = warp_maximum(of_thread.largest);
  if (lane == 0) maxima[warp] = of_warp;
  __syncthreads();
  const float largest = warp_maximum(maxima[lane % (threads / 32)]);
  const double sum = warp_sum(static_cast<double>(of_thread.sum * exponential(of_thread.largest, largest)));
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  return {largest, warp_sum(lane < threads / 32 ? sums[lane] : 0.0)};
}

/// The gradient of a logit, under a softcap, if that of its capped value is `slope`.
template <bool Capped>
__device__ __forceinline__ float under_softcap(float slope, float logit, float inverse_cap) {
  const float tanh = logit * inverse_cap;
  return Capped ? slope * fmaf(-tanh, tanh, 1.0f) : slope;
}

/// Overwrites a row of logits with the gradient: factor times softmax, minus 1 at the label, under a softcap.
template <bool Capped, class T, int threads>
__device__ __forceinline__ void write_gradient(const Row<T, threads>& row, const RowSoftmax& all, int label,
                                               float of_label, double factor, float inverse_cap) {
  constexpr int W = pack_width<T>;
  const auto scale = static_cast<float>(factor / all.sum);
  const double p_of_label = static_cast<double>(exponential(of_label, all.largest)) / all.sum;
  const float slope_of_label =
      under_softcap<Capped>(static_cast<float>((p_of_label - 1) * factor), of_label, inverse_cap);
  const int single = row.single();
  if (single >= 0) {
    const float logit = widened(row.data[single]);
    const float of_other = under_softcap<Capped>(exponential(logit, all.largest) * scale, logit, inverse_cap);
    store(row.data + single, rounded<T>(Pack<float, 1>{{single == label ? slope_of_label : of_other}}));
  }
  for_packs(row, [&](int p, const Pack<T, W>& x) {
    const Pack<float, W> wide = widened(x);
    const int at = label - row.before - p * W;  // index of the label in this pack
    Pack<float, W> slope;
#pragma unroll
    for (int w = 0; w < W; ++w) {
      const float of_other = exponential(wide.at[w], all.largest) * scale;
      slope.at[w] = w == at ? slope_of_label : under_softcap<Capped>(of_other, wide.at[w], inverse_cap);
    }
    store(row.pack(p), rounded<T>(slope));
  });
}

/// Capped: logits have a softcap.
template <class T, bool Capped, int threads>
__global__ void __launch_bounds__(threads)
    cross_entropy_kernel(T* const logits,                   // [n, V]
                         double* const nll,                 // [n]
                         const std::int32_t* const labels,  // [n]
                         const float* const weights,        // [n]
                         const int V, const double denominator, const bool gradient, const float inverse_cap) {
  const std::int64_t t = blockIdx.x;
  const Row<T, threads> row(logits + t * V, V);
  const int label = labels[t];
  const float weight = weights[t];
  const bool slopes = gradient && label >= 0 && weight != 0;
  if (label < 0 && threadIdx.x == 0) nll[t] = 0;
  if (label >= 0) {
    const float of_label = widened(row.data[label]);  // read before the gradient overwrites it
    const RowSoftmax all = softmax_of(row);
    if (threadIdx.x == 0) nll[t] = log(all.sum) + (static_cast<double>(all.largest) - static_cast<double>(of_label));
    if (slopes) {
      write_gradient<Capped>(row, all, label, of_label, static_cast<double>(weight) / denominator, inverse_cap);
    }
  }
  if (gradient && !slopes) fill_with_zeros(row);
}

struct CapLogits {
  float cap, inverse;
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const { out[0] = cap * tanh_of(in[0] * inverse); }
};

struct Weighted {
  const double* values;
  const float* weights;
  const std::int32_t* labels;
  template <int W>
  __device__ double at(std::int64_t i) const {
    static_assert(W == 1);
    return labels[i] >= 0 ? values[i] * static_cast<double>(weights[i]) : 0.0;
  }
};

}  // namespace

void cap_logits(Stream& stream, const TensorView& x, double softcap) {
  dispatch_storage(x.dtype, [&]<class T>() {
    map(stream.cuda(), x.numel(), CapLogits{static_cast<float>(softcap), static_cast<float>(1 / softcap)},
        MapTensors<T, T, 1, 1>{{x.as<T>()}, {x.as<T>()}});
  });
}

void cross_entropy(Stream& stream, const TensorView& logits, const TensorView& nll, const ConstTensorView& labels,
                   const ConstTensorView& weights, double denominator, bool gradient, double softcap) {
  ensure(logits.dim(1) <= INT32_MAX - 2 * wide_row_threads * packs_under_way * 8, "a vocabulary's ids are int32");
  dispatch_storage(logits.dtype, [&]<class T>() {
    Context& context = stream.cuda();
    const bool wide = sizeof(T) * static_cast<std::size_t>(logits.dim(1)) > wide_row_bytes;
    const std::size_t reserved = wide ? std::min(reserved_bytes, context.shared_bytes_per_block() - 2048) : 0;
    const auto run = [&]<bool Capped, int threads>() {
      launch<cross_entropy_kernel<T, Capped, threads>>(
          context, blocks_for(logits.dim(0), 1), threads, reserved, logits.as<T>(), nll.as<double>(),
          labels.as<std::int32_t>(), weights.as<float>(), static_cast<int>(logits.dim(1)), denominator, gradient,
          softcap > 0 ? static_cast<float>(1 / softcap) : 0.0f);
    };
    const auto run_with = [&]<int threads>() {
      softcap > 0 ? run.template operator()<true, threads>() : run.template operator()<false, threads>();
    };
    wide ? run_with.template operator()<wide_row_threads>() : run_with.template operator()<row_threads>();
  });
}

void weighted_sum(Stream& stream, const TensorView& result, const ConstTensorView& values,
                  const ConstTensorView& weights, const ConstTensorView& labels, bool accumulate) {
  sum_over_tree<1>(stream.cuda(), result.as<double>(), values.numel(), true, accumulate,
                   Weighted{values.as<double>(), weights.as<float>(), labels.as<std::int32_t>()});
}

}  // namespace ringtrain::cuda
