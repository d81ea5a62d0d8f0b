// AdamW on the GPU, limited by memory: one launch for as many slices as a kernel's arguments hold (60), each cut into
// tiles that are assigned to blocks. The factors that depend on the step are computed once, in double, on the host.
#include <bit>
#include <cmath>

#include "kernels/adamw_moments.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"

namespace ringtrain::cuda {

namespace {

constexpr int max_slices = 60, tile_threads = 256, tile_packs = 2, W = 4;
constexpr std::int64_t tile_elements = tile_threads * tile_packs * W;

struct Slice {
  float* w;
  void *m, *v;    // of float or BFloat16
  const void* g;  // likewise
  bf16* rounded;  // null: not needed
  std::int64_t n;
  float decay;
  bool whole;                  // pointers are aligned for packs
  unsigned first_tile;         // of the launch
  std::uint32_t first_number;  // of its elements
};

struct Slices {
  Slice at[max_slices];
  int count;
  float b1, one_minus_b1, b2, one_minus_b2, m_correction, v_correction, scale, eps, lr;
};
static_assert(sizeof(Slices) <= 4096, "a kernel's arguments");

template <class M, class G, int width>
struct Loaded {
  Pack<float, width> w;
  Pack<M, width> m, v;
  Pack<G, width> g;
  __device__ void read(const Slice& slice, std::int64_t i) {
    w = load<width>(slice.w + i);
    m = load<width>(static_cast<const M*>(slice.m) + i);
    v = load<width>(static_cast<const M*>(slice.v) + i);
    g = load<width>(static_cast<const G*>(slice.g) + i);
  }
  __device__ void update(const Slices& all, const Slice& slice, std::int64_t i) {
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const float gradient = ringtrain::widened(g.at[k]) * all.scale;
      const float first = all.b1 * ringtrain::widened(m.at[k]) + all.one_minus_b1 * gradient;
      const float second = all.b2 * ringtrain::widened(v.at[k]) + all.one_minus_b2 * gradient * gradient;
      const float step = first * all.m_correction / (sqrtf(second * all.v_correction) + all.eps);
      w.at[k] -= all.lr * (step + slice.decay * w.at[k]);
      store_moments(m.at[k], v.at[k], first, second, slice.first_number + static_cast<std::uint32_t>(i + k));
    }
    store(slice.w + i, w), store(static_cast<M*>(slice.m) + i, m), store(static_cast<M*>(slice.v) + i, v);
    if (slice.rounded != nullptr) store(slice.rounded + i, rounded<bf16>(w));
  }
};

template <class M, class G>
__global__ void __launch_bounds__(tile_threads) adamw_kernel(const __grid_constant__ Slices all) {
  int index = 0;  // the last slice that begins at or before this tile
  for (int step = std::bit_ceil(unsigned{max_slices}) / 2; step > 0; step /= 2) {
    if (index + step < all.count && all.at[index + step].first_tile <= blockIdx.x) index += step;
  }
  const Slice& slice = all.at[index];
  const std::int64_t begin = (blockIdx.x - slice.first_tile) * tile_elements;
  const std::int64_t end = min(slice.n, begin + tile_elements);
  if (slice.whole && end - begin == tile_elements) {
    Loaded<M, G, W> loaded[tile_packs];
    const std::int64_t first = begin + threadIdx.x * W;
#pragma unroll
    for (int u = 0; u < tile_packs; ++u) loaded[u].read(slice, first + u * (tile_threads * W));
#pragma unroll
    for (int u = 0; u < tile_packs; ++u) loaded[u].update(all, slice, first + u * (tile_threads * W));
  } else {
    for (std::int64_t i = begin + threadIdx.x; i < end; i += tile_threads) {
      Loaded<M, G, 1> loaded;
      loaded.read(slice, i);
      loaded.update(all, slice, i);
    }
  }
}

template <class M, class G>
void update(Stream& stream, std::span<const AdamWSlice> slices, const AdamW& hyper) {
  const auto step = static_cast<double>(hyper.step);
  Slices all{};
  all.b1 = static_cast<float>(hyper.beta1);
  all.one_minus_b1 = static_cast<float>(1 - hyper.beta1);
  all.b2 = static_cast<float>(hyper.beta2);
  all.one_minus_b2 = static_cast<float>(1 - hyper.beta2);
  // m^ = m / (1 - b1^step), v^ = v / (1 - b2^step)
  all.m_correction = static_cast<float>(1 / (1 - std::pow(hyper.beta1, step)));
  all.v_correction = static_cast<float>(1 / (1 - std::pow(hyper.beta2, step)));
  all.scale = static_cast<float>(hyper.gradient_scale);
  all.eps = static_cast<float>(hyper.eps);
  all.lr = static_cast<float>(hyper.lr);
  unsigned tiles = 0;
  const auto flush = [&] {
    launch<adamw_kernel<M, G>>(stream.cuda(), tiles, tile_threads, 0, all);
    all.count = 0;
    tiles = 0;
  };
  for (const AdamWSlice& from : slices) {
    if (from.w.numel() == 0) continue;
    Slice& to = all.at[all.count++];
    to.w = from.w.as<float>();
    to.m = from.m.as<M>();
    to.v = from.v.as<M>();
    to.g = from.g.as<G>();
    to.rounded = from.rounded.empty() ? nullptr : from.rounded.as<bf16>();
    to.n = from.w.numel();
    to.decay = static_cast<float>(from.weight_decay);
    to.whole = aligned_to(16, {to.w}) && aligned_to(alignof(Pack<M, W>), {to.m, to.v}) &&
               aligned_to(alignof(Pack<G, W>), {to.g}) && aligned_to(8, {to.rounded});
    to.first_tile = tiles;
    to.first_number = number_of(from.first_element, hyper.seed, hyper.step);
    tiles += blocks_for(to.n, tile_elements);
    if (all.count == max_slices) flush();
  }
  flush();
}

}  // namespace

void adamw_update(Stream& stream, std::span<const AdamWSlice> slices, const AdamW& hyper) {
  if (slices.empty()) return;
  const auto run = [&]<class M>() {
    const bool narrow = slices.front().g.dtype == DType::bfloat16;
    (narrow ? update<M, BFloat16> : update<M, float>)(stream, slices, hyper);
  };
  if (slices.front().m.dtype == DType::bfloat16) return run.template operator()<BFloat16>();
  run.template operator()<float>();
}

}  // namespace ringtrain::cuda
