// How the kernels of this folder read and write tensors: W elements at a time (a Pack), with accesses of 16 bytes if
// pointers and widths allow it, and otherwise one at a time. Storage is float, bfloat16, or double; arithmetic is float
// for the first two and double for the third.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "framework/dtype.h"

namespace ringtrain {

template <>
struct DTypeOf<__nv_bfloat16> {
  static constexpr DType value = DType::bfloat16;
};

namespace cuda {

using bf16 = __nv_bfloat16;

/// The type of the arithmetic with elements of type T.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// W adjacent elements. A pack of 32 bytes takes two accesses of 16.
template <class T, int W>
struct alignas(std::min<std::size_t>(sizeof(T) * W, 16)) Pack {
  T at[W];
};

/// The number of elements in the widest pack for which every type of a kernel reads at most 16 bytes.
template <class... Types>
inline constexpr int pack_width = 16 / static_cast<int>(std::max({sizeof(Types)...}));

template <int W, class T>
__device__ __forceinline__ Pack<T, W> load(const T* from) {
  return *reinterpret_cast<const Pack<T, W>*>(from);
}
template <class T, int W>
__device__ __forceinline__ void store(T* to, const Pack<T, W>& x) {
  *reinterpret_cast<Pack<T, W>*>(to) = x;
}

__device__ __forceinline__ float widened(float x) {
  return x;
}
__device__ __forceinline__ double widened(double x) {
  return x;
}
__device__ __forceinline__ float widened(bf16 x) {
  return __bfloat162float(x);
}
template <class T, int W>
__device__ __forceinline__ Pack<Compute<T>, W> widened(const Pack<T, W>& x) {
  Pack<Compute<T>, W> wide;
#pragma unroll
  for (int i = 0; i < W; ++i) wide.at[i] = widened(x.at[i]);
  return wide;
}

/// Returns x rounded to T.
template <class T, int W>
__device__ __forceinline__ Pack<T, W> rounded(const Pack<Compute<T>, W>& x) {
  if constexpr (std::is_same_v<T, bf16>) {
    Pack<T, W> narrow;
#pragma unroll
    for (int i = 0; i + 1 < W; i += 2) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(x.at[i], x.at[i + 1]);  // one instruction for both
      narrow.at[i] = pair.x;
      narrow.at[i + 1] = pair.y;
    }
    if constexpr (W % 2 == 1) narrow.at[W - 1] = __float2bfloat16_rn(x.at[W - 1]);
    return narrow;
  } else {
    return x;
  }
}

/// Returns whether pointers allow packs of the given bytes.
inline bool aligned_to(std::size_t bytes, std::initializer_list<const void*> pointers) {
  return std::all_of(pointers.begin(), pointers.end(),
                     [=](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; });
}

/// Calls body.template operator()<W>(): W is `widest` if `whole` says that pointers and widths allow such packs, and 1
/// otherwise.
template <int widest, class Body>
void with_packs(bool whole, Body&& body) {
  if (whole) return body.template operator()<widest>();
  body.template operator()<1>();
}

/// Calls body.template operator()<float>() or <bf16>(), the types that GPU kernels store.
template <class Body>
decltype(auto) dispatch_storage(DType dtype, Body&& body) {
  ensure(dtype == DType::float32 || dtype == DType::bfloat16, "a GPU kernel takes float32 or bfloat16");
  if (dtype == DType::bfloat16) return body.template operator()<bf16>();
  return body.template operator()<float>();
}

}  // namespace cuda
}  // namespace ringtrain
