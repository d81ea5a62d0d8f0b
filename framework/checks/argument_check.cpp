#include "framework/checks/argument_check.h"

#include <fmt/core.h>

#include <string>

namespace ringtrain {

namespace {

/// Returns e.g. "[B = 1, T = 8]"; "[B, T = 8]" if B may be any; "[2, T = 8]" for a dimension whose name is 2.
std::string text_of(std::initializer_list<NamedSize> dims) {
  std::string text = "[";
  for (const NamedSize& dim : dims) {
    text += text.size() > 1 ? ", " : "";
    const bool has_a_letter = dim.size != any_size && dim.name != std::to_string(dim.size);
    text += has_a_letter ? fmt::format("{} = {}", dim.name, dim.size) : dim.name;
  }
  return text + "]";
}

std::string without_memory(const ConstTensorView& x, const char* name) {
  return fmt::format("{} is null, but must have memory for {} element{}", name, x.numel(), x.numel() == 1 ? "" : "s");
}

}  // namespace

void refuse_argument(const ConstTensorView& x, const char* name, std::initializer_list<NamedSize> dims, DType dtype,
                     Device device, const CallerLine& line) {
  if (!has_sizes(x.shape, dims)) {
    refuse_call(line, fmt::format("{} has the shape {}, but must have {}", name, x.shape.to_string(), text_of(dims)));
  }
  if (x.dtype != dtype) {
    refuse_call(line, fmt::format("{} has dtype {}, but must have dtype {}", name, name_of(x.dtype), name_of(dtype)));
  }
  if (x.device != device) {
    refuse_call(line, fmt::format("{} is on {}, but must be on {}", name, x.device.name(), device.name()));
  }
  refuse_call(line, without_memory(x, name));
}

void require_memory(const ConstTensorView& x, const char* name, const CallerLine& line) {
  if (x.data == nullptr && x.numel() > 0) refuse_call(line, without_memory(x, name));
}

}  // namespace ringtrain
