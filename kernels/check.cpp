#include "kernels/check.h"

#include <fmt/format.h>

#include <string>

namespace ringtrain {

namespace {

std::string text_of(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", name_of(dtype), shape.to_string());
}

}  // namespace

void refuse_tensor(const ConstTensorView& x, const Shape& shape, DType dtype, const char* what,
                   const std::source_location& place) {
  fail(ExitCode::internal, "{}:{}: internal error: {}: it is {}, where {} is wanted", place.file_name(), place.line(),
       what, text_of(x.dtype, x.shape), text_of(dtype, shape));
}

void refuse_flat(const ConstTensorView& x, const ConstTensorView& like, const char* what,
                 const std::source_location& place) {
  fail(ExitCode::internal, "{}:{}: internal error: {}: one is {}, the other {}", place.file_name(), place.line(), what,
       text_of(x.dtype, x.shape), text_of(like.dtype, like.shape));
}

}  // namespace ringtrain
