#include "kernels/check.h"

#include <fmt/core.h>

#include <string>

namespace ringtrain {

namespace {

std::string text_of(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", name_of(dtype), shape.to_string());
}

}  // namespace

void check_tensor(const ConstTensorView& x, const Shape& shape, DType dtype, const char* what,
                  std::source_location location) {
  if (x.shape == shape && x.dtype == dtype) return;
  fail(ExitCode::internal, "{}:{}: internal error: {}: it is {}, but must be {}", location.file_name(), location.line(),
       what, text_of(x.dtype, x.shape), text_of(dtype, shape));
}

void check_memory(const Stream& stream, const ConstTensorView& x, const char* name, const CallerLine& line) {
  if (x.device != stream.device() && !x.device.is_cpu()) {
    refuse_call(line, fmt::format("{} is on {}, but must be on {}", name, x.device.name(), stream.device().name()));
  }
  require_memory(x, name, line);
}

void check_number(const Stream& stream, const ConstTensorView& x, const char* name, const CallerLine& line) {
  if (x.dtype != DType::float32 && x.dtype != DType::float64 && x.dtype != DType::bfloat16) {
    refuse_call(line, fmt::format("{} has dtype {}, not float32, float64 or bfloat16", name, name_of(x.dtype)));
  }
  check_memory(stream, x, name, line);
}

void check_like(const Stream& stream, const ConstTensorView& x, const char* name, const ConstTensorView& other,
                const char* other_name, const CallerLine& line) {
  if (x.shape != other.shape) {
    refuse_call(line, fmt::format("{} has the shape {}, but must have that of {}, {}", name, x.shape.to_string(),
                                  other_name, other.shape.to_string()));
  }
  check_as_long(stream, x, name, other, other_name, line);
}

void check_as_long(const Stream& stream, const ConstTensorView& x, const char* name, const ConstTensorView& other,
                   const char* other_name, const CallerLine& line) {
  if (x.numel() != other.numel()) {
    refuse_call(line, fmt::format("{} {} has {} elements, but must have as many as {} {}, {}", name,
                                  x.shape.to_string(), x.numel(), other_name, other.shape.to_string(), other.numel()));
  }
  if (x.dtype != other.dtype) {
    refuse_call(line, fmt::format("{} has dtype {}, but must have that of {}, {}", name, name_of(x.dtype), other_name,
                                  name_of(other.dtype)));
  }
  check_memory(stream, x, name, line);
}

}  // namespace ringtrain
