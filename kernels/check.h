// The checks that open every kernel: where it runs, and the shapes and dtypes of its tensors. A tensor that does not
// fit is our own fault, a device that this build does not serve is the user's.
#pragma once

#include "framework/error.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// Throws Error(device) unless the stream is the CPU's, the one device this build has kernels for.
inline void require_cpu(const Stream& stream, const char* kernel) {
  if (!stream.device().is_cpu()) {
    fail(ExitCode::device, "{} on {} needs a build with CUDA; set training.device to cpu", kernel,
         stream.device().name());
  }
}

inline void check_tensor(const TensorView& x, const Shape& shape, DType dtype, const char* what,
                         std::source_location place = std::source_location::current()) {
  ensure(x.shape == shape && x.dtype == dtype, what, place);
}

/// For kernels that see their tensors flat.
inline void check_flat(const TensorView& x, const TensorView& like, const char* what,
                       std::source_location place = std::source_location::current()) {
  ensure(x.numel() == like.numel() && x.dtype == like.dtype, what, place);
}

}  // namespace ringtrain
