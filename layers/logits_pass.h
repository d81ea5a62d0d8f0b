// The end of a forward pass whose logits somebody reads, a chunk of rows at a time: two models can go through a text
// together, and neither ever has the logits of all of it.
#pragma once

#include <cstdint>

#include "framework/tensor.h"

namespace ringtrain {

/// Holds the head's weights as long as it lives (a gather of sharded weights came before, and none follows). It ends
/// before the model's next pass begins.
class LogitsPass {
 public:
  LogitsPass() = default;
  LogitsPass(const LogitsPass&) = delete;
  LogitsPass& operator=(const LogitsPass&) = delete;
  virtual ~LogitsPass() = default;
  /// Returns the most rows of a call.
  virtual std::int64_t most_rows() const = 0;
  /// Returns the logits [end - begin, V] of rows [begin, end) of the batch, flat over [B, T]: on the model's device, of
  /// its dtype, valid until the next call. Does not communicate.
  virtual TensorView rows(std::int64_t begin, std::int64_t end) = 0;
};

}  // namespace ringtrain
