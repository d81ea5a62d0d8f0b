// The checks that open every kernel: the shapes and dtypes of its tensors. A tensor that does not fit is our own fault.
#pragma once

#include "framework/const_tensor_view.h"
#include "framework/error.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

inline void check_tensor(const ConstTensorView& x, const Shape& shape, DType dtype, const char* what,
                         std::source_location place = std::source_location::current()) {
  ensure(x.shape == shape && x.dtype == dtype, what, place);
}

/// For kernels that see their tensors flat.
inline void check_flat(const ConstTensorView& x, const ConstTensorView& like, const char* what,
                       std::source_location place = std::source_location::current()) {
  ensure(x.numel() == like.numel() && x.dtype == like.dtype, what, place);
}

}  // namespace ringtrain
