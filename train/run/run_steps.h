// What each step of a run reads: the config as it holds in it, which samples it takes, and whether it is dumped.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "framework/config/config.h"
#include "train/engine/step_dump.h"
#include "train/run/sample_order.h"

namespace ringtrain {

struct RunSteps {
  Config config;
  std::vector<Config> stages;  // the config as it holds in each stage
  SampleOrder order;
  DumpRequest dump = {};
  /// Called by every rank in each step between loading and forward. Empty but in tests, which break things here.
  std::function<void(RankState& state, std::int64_t step)> before_forward = {};

  /// Returns the config as it holds in a step, which may be 0: its length, batch and rotary positions.
  const Config& at(std::int64_t step) const;
  /// Returns which of a step's sequences is the first of a data rank's micro-batch.
  std::int64_t sequence_in_step(std::int64_t step, int data_rank, std::int64_t micro) const;
  /// Returns the samples that micro-batch `micro` of step `step` (from 1) brings to a data rank: the step's sequences
  /// are cut into one contiguous block a data rank, that into micro-batches in order.
  std::vector<Sample> samples_of(std::int64_t step, int data_rank, std::int64_t micro) const;
  /// Returns the global indices of all sequences of a step, in order.
  std::vector<std::int64_t> sample_indices(std::int64_t step) const;
  /// Returns how many micro-batches a data rank accumulates in a step.
  std::int64_t micro_batches(std::int64_t step) const;
};

}  // namespace ringtrain
