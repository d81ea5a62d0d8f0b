// The dump of one training step by one rank (train --dump-step): weights before the step, inputs, activations and
// gradients as layers give them to the stream's dump, the reduced gradients of parameters, and what the update made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace ringtrain {

class Batch;         // data/batch.h
class Communicator;  // parallel/communicator.h
struct Config;
struct DumpIndex;  // framework/dump/dump_index.h
enum class Part;
class RankState;   // train/engine/rank_state.h
class TensorDump;  // framework/dump/tensor_dump.h

/// The dump that a run is asked for.
struct DumpRequest {
  std::string folder;  // "": none
  std::int64_t step = 0;
  bool update = false;  // also the optimizer's state before the step, and the weights that the step makes
  std::function<bool(const std::string& name)> wanted = {};  // which tensors; empty: all, and people are told of them
};

/// Returns the index of a dump of a config's step, without tensors.
DumpIndex dump_index_of(const Config& config, std::int64_t step);

class StepDump {
 public:
  /// If step is the one of the request: dumps the weights, and what the rank's stream is given until finish(). Else all
  /// of this class does nothing. state, config and request must outlive it.
  StepDump(RankState& state, const Config& config, const DumpRequest& request, std::int64_t step);
  ~StepDump();
  StepDump(const StepDump&) = delete;
  StepDump& operator=(const StepDump&) = delete;

  /// Begins a micro-batch, whose sequences stand from first_sequence on among those of the step.
  void begin_micro_batch(const Batch& batch, std::int64_t first_sequence);
  /// Dumps the reduced gradients of this rank's slices: no tensor of tokens comes any more.
  void end_of_gradients();
  /// If the request wants the update: dumps the weights of this rank's slices as the optimizer left them ("updated."),
  /// and those of other ranks' slices as this rank has received them ("gathered.").
  void end_of_update();
  /// Writes what is left. Collective. Returns what rank 0 tells; "" if nothing was dumped.
  std::string finish(Communicator& world);

 private:
  /// Dumps this rank's part of one tensor for each parameter that is trained, or frozen: view_of(slice) of the slice
  /// that slices_of(parameter's id) holds of it, if any.
  template <class Slices, class View>
  void write_parameters(Part part, const std::string& prefix, const Slices& slices_of, const View& view_of);
  template <class View>
  void write_own(const std::string& prefix, const View& view_of);

  RankState& state_;
  const Config& config_;
  const DumpRequest& request_;
  std::unique_ptr<TensorDump> dump_;  // null: another step
};

}  // namespace ringtrain
