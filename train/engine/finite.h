// The one look for numbers that are none, before a state is saved and when weights are loaded.
#pragma once

#include <cstdint>

#include "framework/const_tensor_view.h"

namespace ringtrain {

/// Returns the index of the first element that is NaN or infinite, -1 if there is none. values: float32 or float64, in
/// host memory.
std::int64_t first_not_finite(const ConstTensorView& values);

}  // namespace ringtrain
