// The end of a forward pass whose logits somebody reads, a chunk of rows at a time: two models can go through a text
// together, and neither ever has the logits of all of it.
#pragma once

#include <cstdint>
#include <functional>

#include "framework/tensor.h"

namespace ringtrain {

/// Holds the head's weights as long as it lives (a gather of sharded weights came before, and none follows). It ends
/// before the model's next pass begins.
struct LogitsPass {
  std::int64_t most_rows = 0;  // of a call
  /// Returns the logits [end - begin, V] of rows [begin, end) of the batch, flat over [B, T]: on the model's device, of
  /// its dtype, valid until the next call. Does not communicate.
  std::function<TensorView(std::int64_t begin, std::int64_t end)> rows;
};

}  // namespace ringtrain
