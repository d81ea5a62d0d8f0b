// How a model will run on a rank: the numbers that fix the sizes of all its buffers.
#pragma once

#include <cstdint>

#include "framework/config/choices.h"
#include "framework/dtype.h"

namespace ringtrain {

/// How the model will run: fixes the sizes of all buffers.
struct ExecutionShape {
  int ring_size = 1;
  std::int64_t max_sequences = 1;  // B of a training micro-batch
  std::int64_t max_tokens = 0;     // T of this rank in training; 0: the model never trains
  std::int64_t max_evaluation_sequences = 1;
  std::int64_t max_evaluation_tokens = 0;       // T of this rank in evaluation; 0: never
  std::int64_t max_ring_tokens = 0;             // the largest T of any ring rank in training
  std::int64_t max_evaluation_ring_tokens = 0;  // and in evaluation
  DType dtype = DType::float32;
  Recompute recompute = Recompute::none;
  bool offload = false;                // kept tensors of the layers wait for backward in host memory
  std::int64_t feedforward_chunk = 0;  // tokens of B * T; 0: all at once
  std::int64_t loss_chunk = 1024;
  bool documents = true;
  bool deterministic = true;    // the same bits from run to run, even if that costs time (a GPU's attention)
  std::int64_t audit_rows = 0;  // rows of attention that an audited step recomputes; 0: no audits
};

}  // namespace ringtrain
