#include "framework/checks/argument_check.h"

#include <fmt/format.h>

#include <string>

#include "framework/error.h"

namespace ringtrain {

namespace {

/// Returns e.g. "[B = 1, T = 8]".
std::string text_of(std::initializer_list<NamedSize> dims) {
  std::string text = "[";
  for (const NamedSize& dim : dims) text += fmt::format("{}{} = {}", text.size() > 1 ? ", " : "", dim.name, dim.size);
  return text + "]";
}

bool equal(const Shape& shape, std::initializer_list<NamedSize> dims) {
  if (shape.rank() != static_cast<int>(dims.size())) return false;
  int dim = 0;
  for (const NamedSize& wanted : dims) {
    if (shape[dim++] != wanted.size) return false;
  }
  return true;
}

}  // namespace

void require_argument(const ConstTensorView& x, const char* name, std::initializer_list<NamedSize> dims, DType dtype,
                      Device device, const std::source_location& place) {
  const std::string where = fmt::format("{}:{}: {}", place.file_name(), place.line(), name);
  if (!equal(x.shape, dims)) {
    fail(ExitCode::usage, "{} has the shape {}, but must have {}", where, x.shape.to_string(), text_of(dims));
  }
  if (x.dtype != dtype) {
    fail(ExitCode::usage, "{} is of {}, but must be of {}", where, name_of(x.dtype), name_of(dtype));
  }
  if (x.device != device) {
    fail(ExitCode::usage, "{} lies on {}, but must lie on {}", where, x.device.name(), device.name());
  }
  if (x.data == nullptr && x.numel() > 0) {
    fail(ExitCode::usage, "{} is null, but must have memory for {} elements", where, x.numel());
  }
}

}  // namespace ringtrain
