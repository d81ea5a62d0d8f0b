// The checks that open every kernel: the shapes and dtypes of its tensors. What a public kernel gets wrong is told to
// its caller (check_argument and what follows it). Kernels that layers of ours alone call have check_tensor: there a
// tensor that does not fit is our own fault.
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/checks/argument_check.h"
#include "framework/const_tensor_view.h"
#include "framework/error.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// Throws Error(internal) that names the place, what should hold, and what was found beside it, unless x has this shape
/// and dtype.
void check_tensor(const ConstTensorView& x, const Shape& shape, DType dtype, const char* what,
                  std::source_location location = std::source_location::current());

/// The same for kernels that see their tensors flat: unless x has as many elements as another tensor, and its dtype.
void check_flat(const ConstTensorView& x, const ConstTensorView& like, const char* what,
                std::source_location location = std::source_location::current());

/// Holds every id of a table of `rows` rows against it, before anything is read or added there. ids: int32, on the
/// host; each from `lowest` to rows - 1. The pass over them costs nothing beside the rows that they name.
inline void check_ids(const ConstTensorView& ids, std::int64_t rows, const char* what, std::int32_t lowest = 0,
                      std::source_location location = std::source_location::current()) {
  ensure(rows <= INT32_MAX, "rows of a table are numbered by int32", location);
  const auto* const id = ids.as<std::int32_t>();
  const std::int64_t tokens = ids.numel();
  const auto first = static_cast<std::uint32_t>(lowest), count = static_cast<std::uint32_t>(rows) - first;
  std::uint32_t largest = 0;  // of the distances to the lowest: what lies below it is far above all
  for (std::int64_t t = 0; t < tokens; ++t) largest = std::max(largest, static_cast<std::uint32_t>(id[t]) - first);
  ensure(tokens == 0 || largest < count, what, location);
}

/// Refuses a call unless x has these dimensions and this dtype, memory if it has elements, and lies where the kernel
/// runs: on the host for a CPU. (Some kernels of a GPU read what lies on the host, too.)
inline void check_argument(const Stream& stream, const ConstTensorView& x, const char* name,
                           std::initializer_list<NamedSize> dims, DType dtype, const CallerLine& line) {
  require_argument(x, name, dims, dtype, stream.on_cuda() ? x.device : Device::cpu(), line);
}

/// Refuses a call whose x has elements but no memory, or none where the kernel runs.
void check_memory(const Stream& stream, const ConstTensorView& x, const char* name, const CallerLine& line);

/// The same, and of an x whose dtype kernels do not compute with.
void check_number(const Stream& stream, const ConstTensorView& x, const char* name, const CallerLine& line);

/// Refuses a call unless x has the shape and the dtype of another tensor.
void check_like(const Stream& stream, const ConstTensorView& x, const char* name, const ConstTensorView& other,
                const char* other_name, const CallerLine& line);

/// Refuses a call unless x has as many elements as another tensor, and its dtype.
void check_as_long(const Stream& stream, const ConstTensorView& x, const char* name, const ConstTensorView& other,
                   const char* other_name, const CallerLine& line);

}  // namespace ringtrain
