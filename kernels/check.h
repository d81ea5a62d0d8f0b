// The checks at the beginning of every kernel: the shapes and dtypes of its tensors. Public kernels report mistakes to
// their caller (check_argument and the functions below it). Kernels that only our own layers call use check_tensor:
// there, a tensor that does not fit is our own mistake.
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/checks/argument_check.h"
#include "framework/const_tensor_view.h"
#include "framework/error.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// Throws Error(internal) that names the source location, the expectation, and what was found, unless x has this shape
/// and dtype.
void check_tensor(const ConstTensorView& x, const Shape& shape, DType dtype, const char* what,
                  std::source_location location = std::source_location::current());

/// Checks every id against a table of `rows` rows, before anything is read or added there. ids: int32, on the host;
/// each from `lowest` to rows - 1. The cost of this pass is negligible compared with the rows that the ids select.
inline void check_ids(const ConstTensorView& ids, std::int64_t rows, const char* what, std::int32_t lowest = 0,
                      std::source_location location = std::source_location::current()) {
  ensure(rows <= INT32_MAX, "rows of a table are numbered by int32", location);
  const auto* const id = ids.as<std::int32_t>();
  const std::int64_t tokens = ids.numel();
  const auto first = static_cast<std::uint32_t>(lowest), count = static_cast<std::uint32_t>(rows) - first;
  std::uint32_t largest = 0;  // of the distances to the lowest; an id below it has a very large distance
  for (std::int64_t t = 0; t < tokens; ++t) largest = std::max(largest, static_cast<std::uint32_t>(id[t]) - first);
  ensure(tokens == 0 || largest < count, what, location);
}

/// Refuses a call unless x has these dimensions and this dtype, has memory if it has elements, and is on the stream's
/// device.
inline void check_argument(const Stream& stream, const ConstTensorView& x, const char* name,
                           std::initializer_list<NamedSize> dims, DType dtype, const CallerLine& line) {
  require_argument(x, name, dims, dtype, stream.device(), line);
}

/// Returns whether an optional argument was not left out.
inline bool is_given(const ConstTensorView& x) {
  return !x.empty() || x.shape.rank() > 0;
}

/// Refuses a call if x has elements but no memory, or none on the stream's device. (Flat kernels of a GPU also take
/// tensors on the host: pinned ones, or any to copy.)
void check_memory(const Stream& stream, const ConstTensorView& x, const char* name, const CallerLine& line);

/// The same, and refuses an x whose dtype kernels do not compute with.
void check_number(const Stream& stream, const ConstTensorView& x, const char* name, const CallerLine& line);

/// Refuses a call unless x has the shape and the dtype of another tensor.
void check_like(const Stream& stream, const ConstTensorView& x, const char* name, const ConstTensorView& other,
                const char* other_name, const CallerLine& line);

/// Refuses a call unless x has the dtype and the number of elements of another tensor.
void check_as_long(const Stream& stream, const ConstTensorView& x, const char* name, const ConstTensorView& other,
                   const char* other_name, const CallerLine& line);

}  // namespace ringtrain
