// Descriptions of tensors for Hopper's copy engine. They are made anew for every call, only on the host (about a
// microsecond each), and passed as kernel arguments.
#pragma once

#include <cuda.h>

#include "framework/const_tensor_view.h"
#include "framework/tensor.h"

namespace ringtrain::cuda::hopper {

/// Returns the map of a dense tensor x[B, T, H, D], bfloat16 or float32, on the device: coordinates are (element, head,
/// token, sequence). A box is 128 bytes of one head for `tokens` tokens (at most 256), in shared memory with a swizzle
/// of 128 bytes. Throws Error(device) if the driver refuses.
CUtensorMap head_map(const ConstTensorView& x, int tokens);

}  // namespace ringtrain::cuda::hopper
