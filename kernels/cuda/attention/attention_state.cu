// The passes over attention's state alone: finalisation, and backward's delta. They move memory: 16 bytes a thread and
// access where a head's elements allow.
#include <cmath>

#include "kernels/cuda/attention/attention_general.cuh"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain::cuda {

namespace {

constexpr int threads = 256;
constexpr std::int64_t max_blocks = 1 << 16;  // of a kernel whose threads go round

/// `Width` elements of T that are loaded and stored as one.
template <class T, int Width>
struct alignas(sizeof(T) * Width) Pack {
  T at[Width];
};

dim3 grid_for(std::int64_t items) {
  const std::int64_t blocks = (items + threads - 1) / threads;
  return dim3(static_cast<unsigned>(blocks < max_blocks ? blocks : max_blocks));
}

__device__ __forceinline__ std::int64_t first_item() {
  return std::int64_t{blockIdx.x} * threads + threadIdx.x;
}
__device__ __forceinline__ std::int64_t item_stride() {
  return std::int64_t{gridDim.x} * threads;
}

bool aligned(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

template <class T, int Width>
__global__ void __launch_bounds__(threads)
    finish_kernel(T* out, float* lse, const float* o, const float* m, const float* l, std::int64_t items,
                  std::int64_t tokens, int H, int packs) {
  for (std::int64_t i = first_item(); i < items; i += item_stride()) {
    const std::int64_t head = i / packs, token = head / H;  // head: of B * T * H
    const std::int64_t row = (token / tokens * H + head % H) * tokens + token % tokens;
    const float sum = l[row], inverse = sum == 0.0F ? 0.0F : 1.0F / sum;
    const Pack<float, Width> from = reinterpret_cast<const Pack<float, Width>*>(o)[i];
    Pack<T, Width> to;
#pragma unroll
    for (int e = 0; e < Width; ++e) general::assign(to.at[e], from.at[e] * inverse);
    reinterpret_cast<Pack<T, Width>*>(out)[i] = to;
    if (i % packs == 0) lse[row] = sum == 0.0F ? -INFINITY : m[row] + logf(sum);
  }
}

/// Eight lanes a row of D elements, in packs of Width.
template <class T, int Width>
__global__ void __launch_bounds__(threads)
    delta_kernel(float* delta, const T* dout, const T* out, std::int64_t rows, std::int64_t tokens, int H, int packs) {
  constexpr int lanes = 8;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  // Whole warps stay in the loop: what is beyond the last row adds nothing and is not stored.
  for (std::int64_t first = first_item() / 32 * (32 / lanes); first < rows; first += item_stride() / lanes) {
    const std::int64_t head = first + static_cast<int>(threadIdx.x) % 32 / lanes;
    float sum = 0.0F;
    for (int i = lane; head < rows && i < packs; i += lanes) {
      const auto x = reinterpret_cast<const Pack<T, Width>*>(dout)[head * packs + i];
      const auto y = reinterpret_cast<const Pack<T, Width>*>(out)[head * packs + i];
#pragma unroll
      for (int e = 0; e < Width; ++e) sum = fmaf(general::value_of(x.at[e]), general::value_of(y.at[e]), sum);
    }
#pragma unroll
    for (int apart = 1; apart < lanes; apart *= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, apart);
    const std::int64_t token = head / H;
    if (lane == 0 && head < rows) delta[(token / tokens * H + head % H) * tokens + token % tokens] = sum;
  }
}

/// Calls body.template operator()<T, Width>() for device tensors of a dtype: Width elements are 16 bytes of T where
/// rows of D divide so and the pointers are aligned, else one.
template <class Body>
void with_packs(DType dtype, std::int64_t D, bool all_aligned, Body&& body) {
  if (dtype == DType::bfloat16) {
    return all_aligned && D % 8 == 0 ? body.template operator()<__nv_bfloat16, 8>()
                                     : body.template operator()<__nv_bfloat16, 1>();
  }
  all_aligned&& D % 4 == 0 ? body.template operator()<float, 4>() : body.template operator()<float, 1>();
}

}  // namespace

void attention_finalize(Stream& stream, const AttentionState& state, const TensorView& out, const TensorView& lse) {
  const std::int64_t T = out.dim(1), H = out.dim(2), D = out.dim(3);
  with_packs(out.dtype, D, aligned(out.data) && aligned(state.o.data), [&]<class E, int Width>() {
    const std::int64_t items = out.numel() / Width;
    launch<finish_kernel<E, Width>>(stream.cuda(), grid_for(items), dim3(threads), 0, static_cast<E*>(out.data),
                                    lse.as<float>(), state.o.as<float>(), state.m.as<float>(), state.l.as<float>(),
                                    items, T, static_cast<int>(H), static_cast<int>(D / Width));
  });
}

void attention_delta(Stream& stream, const TensorView& delta, const ConstTensorView& dout, const ConstTensorView& out) {
  const std::int64_t T = out.dim(1), H = out.dim(2), D = out.dim(3), rows = delta.numel();
  with_packs(out.dtype, D, aligned(out.data) && aligned(dout.data), [&]<class E, int Width>() {
    launch<delta_kernel<E, Width>>(stream.cuda(), grid_for(rows * 8), dim3(threads), 0, delta.as<float>(),
                                   static_cast<const E*>(dout.data), static_cast<const E*>(out.data), rows, T,
                                   static_cast<int>(H), static_cast<int>(D / Width));
  });
}

}  // namespace ringtrain::cuda
