// Holds the tensors of a caller of the library against what a function takes. What does not fit is the caller's
// mistake: an Error(usage) that names the caller's line, the tensor, what it is, and what it must be, dimension by
// dimension. (Tensors that layers hand to kernels are checked by kernels/check.h: those are our own.)
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>

#include "framework/const_tensor_view.h"
#include "framework/device.h"
#include "framework/dtype.h"

namespace ringtrain {

/// A dimension by its letter, and the size that it must have.
struct NamedSize {
  const char* name;
  std::int64_t size;
};

/// Throws Error(usage) unless x has these dimensions, this dtype and this device, and memory if it has elements. place:
/// the caller's line, which the sentence begins with.
void require_argument(const ConstTensorView& x, const char* name, std::initializer_list<NamedSize> dims, DType dtype,
                      Device device, const std::source_location& place);

}  // namespace ringtrain
