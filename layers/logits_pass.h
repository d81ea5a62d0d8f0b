// The end of a forward pass for a caller that reads the logits, a chunk of rows at a time: two models can process a
// text together, and neither ever holds all of its logits.
#pragma once

#include <cstdint>
#include <functional>

#include "framework/tensor.h"

namespace ringtrain {

/// Holds the head's weights as long as it lives (sharded weights were gathered before, and no gather follows). It must
/// end before the model's next pass begins.
struct LogitsPass {
  std::int64_t most_rows = 0;  // per call
  /// Returns the logits [end - begin, V] of rows [begin, end) of the batch, flattened over [B, T]: on the model's
  /// device, in its dtype, valid until the next call. Does not communicate.
  std::function<TensorView(std::int64_t begin, std::int64_t end)> rows;
};

}  // namespace ringtrain
