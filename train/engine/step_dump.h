// The dump of one training step by one rank (train --dump-step): weights before the step, inputs, activations and
// gradients as layers give them to the stream's dump, and the reduced gradients of parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/batch.h"
#include "framework/config/config.h"
#include "framework/dump/tensor_dump.h"
#include "train/engine/rank_state.h"

namespace ringtrain {

/// The dump that a run is asked for.
struct DumpRequest {
  std::string folder;  // "": none
  std::int64_t step = 0;
};

/// Returns the index of a dump of a config's step, without tensors.
DumpIndex dump_index_of(const Config& config, std::int64_t step);

class StepDump {
 public:
  /// If step is the one of the request: dumps the weights, and what the rank's stream is given until finish(). Else all
  /// of this class does nothing. state and config must outlive it.
  StepDump(RankState& state, const Config& config, const DumpRequest& request, std::int64_t step);
  ~StepDump();
  StepDump(const StepDump&) = delete;
  StepDump& operator=(const StepDump&) = delete;

  /// Begins a micro-batch, whose sequences stand from first_sequence on among those of the step.
  void begin_micro_batch(const Batch& batch, std::int64_t first_sequence);
  /// Dumps the reduced gradients of this rank's slices and writes what is left. Collective. Returns what rank 0 tells;
  /// "" if nothing was dumped.
  std::string finish(Communicator& world);

 private:
  /// Dumps this rank's slices of one tensor a parameter.
  template <class View>
  void write_parameters(const std::string& prefix, const View& view_of);

  RankState& state_;
  const Config& config_;
  const std::string folder_;
  const std::int64_t step_;
  std::unique_ptr<TensorDump> dump_;  // null: another step
};

}  // namespace ringtrain
