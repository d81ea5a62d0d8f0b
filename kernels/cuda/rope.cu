// Rotary embedding on the GPU. A block rotates all heads of one token; a thread keeps the cosines and sines of its
// pairs for all heads. The table's angles are computed in double.
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"

namespace ringtrain::cuda {

namespace {

constexpr int max_frequencies = 128, table_threads = 256, rotate_threads = 256;

struct Frequencies {
  double inverse[max_frequencies];
};

/// Computes columns [first, first + count) of the cosines of table[T, 2 half], and of the sines.
__global__ void __launch_bounds__(table_threads)
    rope_table_kernel(const __grid_constant__ Frequencies frequencies, const double magnitude, float* const table,
                      const std::int32_t* const positions, const std::int64_t T, const int half, const int first,
                      const int count) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * table_threads + threadIdx.x;
  const std::int64_t t = index / count;
  const int i = static_cast<int>(index % count);
  if (t >= T) return;
  double sine = 0, cosine = 0;
  sincos(positions[t] * frequencies.inverse[i], &sine, &cosine);
  float* const to = table + t * 2 * half + first + i;
  to[0] = static_cast<float>(cosine * magnitude);
  to[half] = static_cast<float>(sine * magnitude);
}

/// y = x rotated by the table's angles (direction 1) or back (-1); y may be x. blockDim.x threads share a head's pairs,
/// blockDim.y a token's heads.
template <int direction, class To, class From, int W>
__global__ void __launch_bounds__(rotate_threads) rotate_kernel(To* const y,               // [T, H, 2 half]
                                                                const From* const x,       // [T, H, 2 half]
                                                                const float* const table,  // [T, 2 half]
                                                                const int H, const int half) {
  const std::int64_t t = blockIdx.x;
  const int D = 2 * half;
  for (int i = static_cast<int>(threadIdx.x) * W; i < half; i += static_cast<int>(blockDim.x) * W) {
    const Pack<float, W> cosine = load<W>(table + t * D + i), sine = load<W>(table + t * D + half + i);
#pragma unroll 2
    for (int h = static_cast<int>(threadIdx.y); h < H; h += static_cast<int>(blockDim.y)) {
      const std::int64_t low = (t * H + h) * D + i, high = low + half;
      const Pack<float, W> a = widened(load<W>(x + low)), b = widened(load<W>(x + high));
      Pack<float, W> a_turned, b_turned;
#pragma unroll
      for (int w = 0; w < W; ++w) {
        const float s = direction * sine.at[w];
        a_turned.at[w] = a.at[w] * cosine.at[w] - b.at[w] * s;
        b_turned.at[w] = b.at[w] * cosine.at[w] + a.at[w] * s;
      }
      store(y + low, rounded<To>(a_turned));
      store(y + high, rounded<To>(b_turned));
    }
  }
}

template <int direction, class To, class From>
void rotate(Context& context, const TensorView& y, const ConstTensorView& x, const ConstTensorView& table) {
  constexpr int widest = pack_width<To, From>;
  const auto H = static_cast<int>(x.dim(1)), half = static_cast<int>(x.dim(2) / 2);
  if (x.numel() == 0) return;
  with_packs<widest>(half % widest == 0 && aligned_to(16, {y.data, x.data, table.data}), [&]<int W>() {
    const int across = std::min(half / W, rotate_threads), heads = std::clamp(rotate_threads / across, 1, H);
    const dim3 block(static_cast<unsigned>(across), static_cast<unsigned>(heads));
    launch<rotate_kernel<direction, To, From, W>>(context, blocks_for(x.dim(0), 1), block, 0, y.as<To>(), x.as<From>(),
                                                  table.as<float>(), H, half);
  });
}

}  // namespace

void rope_table(Stream& stream, const TensorView& table, const ConstTensorView& positions,
                const RopeFrequencies& frequencies) {
  const std::int64_t T = positions.numel();
  const auto half = static_cast<int>(frequencies.inverse.size());
  for (int first = 0; first < half; first += max_frequencies) {
    const int count = std::min(half - first, max_frequencies);
    Frequencies some{};
    std::copy_n(frequencies.inverse.begin() + first, count, some.inverse);
    launch<rope_table_kernel>(stream.cuda(), blocks_for(T * count, table_threads), table_threads, 0, some,
                              frequencies.magnitude, table.as<float>(), positions.as<std::int32_t>(), T, half, first,
                              count);
  }
}

void rope_forward(Stream& stream, const TensorView& x, const ConstTensorView& table) {
  dispatch_storage(x.dtype, [&]<class T>() { rotate<1, T, T>(stream.cuda(), x, x, table); });
}

void rope_backward(Stream& stream, const TensorView& dx, const ConstTensorView& gradient,
                   const ConstTensorView& table) {
  dispatch_storage(dx.dtype, [&]<class T>() { rotate<-1, T, float>(stream.cuda(), dx, gradient, table); });
}

}  // namespace ringtrain::cuda
