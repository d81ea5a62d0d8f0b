#include "framework/checks/argument_check.h"

#include <fmt/format.h>

#include <string>

namespace ringtrain {

namespace {

/// Returns e.g. "[B = 1, T = 8]"; "[B, T = 8]" where B may be any.
std::string text_of(std::initializer_list<NamedSize> dims) {
  std::string text = "[";
  for (const NamedSize& dim : dims) {
    text += text.size() > 1 ? ", " : "";
    text += dim.size == any_size ? dim.name : fmt::format("{} = {}", dim.name, dim.size);
  }
  return text + "]";
}

bool equal(const Shape& shape, std::initializer_list<NamedSize> dims) {
  if (shape.rank() != static_cast<int>(dims.size())) return false;
  int dim = 0;
  for (const NamedSize& wanted : dims) {
    const std::int64_t size = shape[dim++];
    if (wanted.size != any_size && size != wanted.size) return false;
  }
  return true;
}

}  // namespace

void refuse_argument(const ConstTensorView& x, const char* name, std::initializer_list<NamedSize> dims, DType dtype,
                     Device device, const CallerLine& line) {
  if (!equal(x.shape, dims)) {
    refuse_call(line, fmt::format("{} has the shape {}, but must have {}", name, x.shape.to_string(), text_of(dims)));
  }
  if (x.dtype != dtype) {
    refuse_call(line, fmt::format("{} is of {}, but must be of {}", name, name_of(x.dtype), name_of(dtype)));
  }
  if (x.device != device) {
    refuse_call(line, fmt::format("{} lies on {}, but must lie on {}", name, x.device.name(), device.name()));
  }
  refuse_call(line, fmt::format("{} is null, but must have memory for {} elements", name, x.numel()));
}

}  // namespace ringtrain
