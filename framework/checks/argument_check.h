// Checks the tensors that a caller of the library passes. A tensor that does not fit is the caller's mistake: an
// Error(usage) that names the caller's line, the tensor, what it is, and what it must be, dimension by dimension.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "framework/const_tensor_view.h"
#include "framework/device.h"
#include "framework/dtype.h"
#include "framework/error.h"

namespace ringtrain {

inline constexpr std::int64_t any_size = -1;

/// A dimension's letter and its required size, which may be any_size.
struct NamedSize {
  const char* name;
  std::int64_t size;
};

/// Returns whether a shape has these dimensions.
inline bool has_sizes(const Shape& shape, std::initializer_list<NamedSize> dims) {
  if (shape.rank() != static_cast<int>(dims.size())) return false;
  int dim = 0;
  for (const NamedSize& wanted : dims) {
    const std::int64_t size = shape[dim++];
    if (wanted.size != any_size && size != wanted.size) return false;
  }
  return true;
}

/// Refuses a call whose tensor does not meet the conditions of require_argument.
[[noreturn]] void refuse_argument(const ConstTensorView& x, const char* name, std::initializer_list<NamedSize> dims,
                                  DType dtype, Device device, const CallerLine& line);

/// Throws Error(usage) if x, of any shape, has elements but no memory.
void require_memory(const ConstTensorView& x, const char* name, const CallerLine& line);

/// Throws Error(usage) unless x has these dimensions, this dtype, and this device, and memory if it has elements. line:
/// the caller's line, with which the message begins (refuse_call).
inline void require_argument(const ConstTensorView& x, const char* name, std::initializer_list<NamedSize> dims,
                             DType dtype, Device device, const CallerLine& line) {
  const bool fits = has_sizes(x.shape, dims) && x.dtype == dtype && x.device == device;
  if (!fits || (x.data == nullptr && x.numel() > 0)) [[unlikely]]
    refuse_argument(x, name, dims, dtype, device, line);
}

}  // namespace ringtrain
