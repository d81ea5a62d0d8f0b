// The section training of a config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/config/choices.h"
#include "framework/config/rope_scaling.h"
#include "framework/device.h"
#include "framework/dtype.h"

namespace ringtrain {

/// Rows of attention that a step recomputes in double for comparison.
struct AuditConfig {
  std::int64_t interval = 0;  // steps; 0: never
  std::int64_t rows = 4;      // of each rank
  OnFailure on_failure = OnFailure::stop;
};

/// What changes at a step; training_stages.h says which values each step has.
struct TrainingStage {
  std::int64_t from_step = 0;                              // the stage's first step, 2 or more
  std::optional<std::int64_t> seq_len, global_batch_size;  // not set: as before
  std::optional<double> rope_theta;
  std::optional<RopeScalingConfig> rope_scaling;  // the whole section
};

struct TrainingConfig {
  std::int64_t seq_len = 0;  // required
  std::int64_t global_batch_size = 1;
  std::int64_t micro_batch_size = 1;
  std::int64_t steps = 0;             // required
  std::vector<TrainingStage> stages;  // after the first, ascending by from_step
  std::uint64_t seed = 1234;
  Device::Kind device = Device::Kind::cpu;
  Offload offload = Offload::none;
  Shard shard = Shard::optimizer;
  std::vector<std::string> trainable;  // patterns of parameters' names; none: all are trained
  DType dtype = DType::float32;
  Recompute recompute = Recompute::keep_attention;
  std::int64_t feedforward_chunk = -1;  // tokens; 0: all at once; -1: by device
  std::int64_t loss_chunk = 0;          // 0: by device
  bool deterministic = true;
  OnNonfinite on_nonfinite = OnNonfinite::stop;
  std::int64_t max_skipped_steps = 5;  // in a row
  AuditConfig audit;

  /// Returns the two chunks in tokens. On a GPU, larger ones read the sums of gradients less often.
  std::int64_t feedforward_tokens() const {
    return feedforward_chunk >= 0 ? feedforward_chunk : device == Device::Kind::cuda ? 16384 : 2048;
  }
  std::int64_t loss_tokens() const { return loss_chunk > 0 ? loss_chunk : device == Device::Kind::cuda ? 8192 : 1024; }
  /// Returns whether activations, or the optimizer's state, are offloaded.
  bool offloads(Offload what) const { return offload == what || offload == Offload::activations_and_optimizer; }
  /// Returns whether the store holds the float32 weights of a bfloat16 model, instead of the optimizer.
  bool store_holds_masters() const {
    return shard == Shard::weights && dtype == DType::bfloat16 && !offloads(Offload::optimizer);
  }
};

}  // namespace ringtrain
