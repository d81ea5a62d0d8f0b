// Element types of tensors. bfloat16 is a type of storage: kernels widen what they read, compute in float32, and round
// what they store.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "framework/error.h"

namespace ringtrain {

enum class DType : std::uint8_t { float32, float64, bfloat16, int32, int64, uint8 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return 4;
    case DType::float64:
      return 8;
    case DType::bfloat16:
      return 2;
    case DType::int32:
      return 4;
    case DType::int64:
      return 8;
    case DType::uint8:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::bfloat16:
      return "bfloat16";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
    case DType::uint8:
      return "uint8";
  }
  return "?";
}

/// Returns the type in which sums of `dtype` are kept, and what must not be rounded between two uses: the running state
/// of attention, parameter gradients, statistics, the optimizer's weights and moments.
constexpr DType accumulator(DType dtype) {
  return dtype == DType::bfloat16 ? DType::float32 : dtype;
}

/// A bfloat16 number as the host sees it: the upper half of a float32.
struct BFloat16 {
  std::uint16_t bits = 0;

  /// Returns value rounded to nearest, ties to even; NaN stays NaN.
  static constexpr BFloat16 rounded(float value) {
    const auto full = std::bit_cast<std::uint32_t>(value);
    if ((full & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((full >> 16) | 0x40U)};
    return {static_cast<std::uint16_t>((full + 0x7fffU + ((full >> 16) & 1U)) >> 16)};
  }
  constexpr float value() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// Returns a stored number as it is computed with.
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
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};

/// Calls body.template operator()<S, A>() with the type that dtype is stored in and that of its accumulator: <float,
/// float>, <double, double> or <BFloat16, float>. Any other dtype is our own fault.
template <class Body>
decltype(auto) dispatch_dtype(DType dtype, Body&& body) {
  ensure(dtype == DType::float32 || dtype == DType::float64 || dtype == DType::bfloat16,
         "a CPU kernel takes float32, float64 or bfloat16");
  if (dtype == DType::float64) return body.template operator()<double, double>();
  if (dtype == DType::bfloat16) return body.template operator()<BFloat16, float>();
  return body.template operator()<float, float>();
}

/// Calls body.template operator()<float>() or <double>(), as dtype says: what is never bfloat16, such as sums.
template <class Body>
decltype(auto) dispatch_float(DType dtype, Body&& body) {
  ensure(dtype == DType::float32 || dtype == DType::float64, "sums on a CPU are float32 or float64");
  if (dtype == DType::float64) return body.template operator()<double>();
  return body.template operator()<float>();
}

}  // namespace ringtrain
