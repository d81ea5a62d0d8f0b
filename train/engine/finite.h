// The check of tensors for NaN and infinity, before a state is saved and when weights are loaded.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "framework/const_tensor_view.h"
#include "framework/dtype.h"

namespace ringtrain {

/// Returns the index of the first element that is NaN or infinite, -1 if there is none. values: float32 or float64, in
/// host memory.
inline std::int64_t first_not_finite(const ConstTensorView& values) {
  return dispatch_float(values.dtype, [&]<class Real>() -> std::int64_t {
    using Bits = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
    constexpr auto exponent = std::bit_cast<Bits>(std::numeric_limits<Real>::infinity());
    const Real* const data = values.as<Real>();
    const Real* const end = data + values.numel();
    Bits found = 0;  // integers and no early exit, so that compilers vectorize the loop
    for (const Real* value = data; value != end; ++value) found |= (std::bit_cast<Bits>(*value) & exponent) == exponent;
    return found == 0 ? -1 : std::find_if(data, end, [](Real value) { return !std::isfinite(value); }) - data;
  });
}

}  // namespace ringtrain
