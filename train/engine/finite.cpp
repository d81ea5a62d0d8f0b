#include "train/engine/finite.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "framework/dtype.h"

namespace ringtrain {

std::int64_t first_not_finite(const ConstTensorView& values) {
  return dispatch_float(values.dtype, [&]<class Real>() -> std::int64_t {
    using Bits = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
    constexpr auto exponent = std::bit_cast<Bits>(std::numeric_limits<Real>::infinity());
    const Real* const data = values.as<Real>();
    const Real* const end = data + values.numel();
    Bits found = 0;  // whole numbers and no way out, so that compilers make vectors of it
    for (const Real* value = data; value != end; ++value) found |= (std::bit_cast<Bits>(*value) & exponent) == exponent;
    return found == 0 ? -1 : std::find_if(data, end, [](Real value) { return !std::isfinite(value); }) - data;
  });
}

}  // namespace ringtrain
