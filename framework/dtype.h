// Element types of tensors. bfloat16 is a storage type: kernels widen what they read, compute in float32, and round
// what they store.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "framework/error.h"

namespace ringtrain {

enum class DType : std::uint8_t { float32, float64, bfloat16, int32, int64, uint8 };

struct DTypeEntry {
  const char* name;
  std::size_t bytes;
};
inline constexpr DTypeEntry dtypes[] = {{"float32", 4}, {"float64", 8}, {"bfloat16", 2},
                                        {"int32", 4},   {"int64", 8},   {"uint8", 1}};  // in the order of DType

constexpr std::size_t size_of(DType dtype) {
  return dtypes[static_cast<std::size_t>(dtype)].bytes;
}
constexpr const char* name_of(DType dtype) {
  return dtypes[static_cast<std::size_t>(dtype)].name;
}

/// Returns the type of sums of `dtype`, and of values that must not be rounded between two uses: the running state of
/// attention, parameter gradients, statistics, the optimizer's weights and moments.
constexpr DType accumulator(DType dtype) {
  return dtype == DType::bfloat16 ? DType::float32 : dtype;
}

/// A bfloat16 number on the host: the upper half of a float32.
struct BFloat16 {
  std::uint16_t bits = 0;

  /// Returns value rounded to nearest, ties to even; NaN remains NaN.
  static constexpr BFloat16 rounded(float value) {
    const auto full = std::bit_cast<std::uint32_t>(value);
    if ((full & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((full >> 16) | 0x40U)};
    return {static_cast<std::uint16_t>((full + 0x7fffU + ((full >> 16) & 1U)) >> 16)};
  }
  constexpr float value() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// Returns a stored number in the type in which it is computed.
constexpr float widened(BFloat16 x) {
  return x.value();
}
template <class T>
constexpr T widened(T x) {
  return x;
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::bfloat16> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::float32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::float64> {};
template <>
struct DTypeOf<std::int32_t> : std::integral_constant<DType, DType::int32> {};
template <>
struct DTypeOf<std::int64_t> : std::integral_constant<DType, DType::int64> {};
template <>
struct DTypeOf<std::uint8_t> : std::integral_constant<DType, DType::uint8> {};

/// Calls body.template operator()<S, A>() with the type in which dtype is stored and that of its accumulator: <float,
/// float>, <double, double>, or <BFloat16, float>. Any other dtype is our own mistake.
template <class Body>
decltype(auto) dispatch_dtype(DType dtype, Body&& body) {
  ensure(dtype == DType::float32 || dtype == DType::float64 || dtype == DType::bfloat16,
         "a CPU kernel takes float32, float64 or bfloat16");
  if (dtype == DType::float64) return body.template operator()<double, double>();
  if (dtype == DType::bfloat16) return body.template operator()<BFloat16, float>();
  return body.template operator()<float, float>();
}

/// Calls body.template operator()<float>() or <double>(), according to dtype: for values that are never bfloat16, such
/// as sums.
template <class Body>
decltype(auto) dispatch_float(DType dtype, Body&& body) {
  ensure(dtype == DType::float32 || dtype == DType::float64, "sums on a CPU are float32 or float64");
  if (dtype == DType::float64) return body.template operator()<double>();
  return body.template operator()<float>();
}

}  // namespace ringtrain
