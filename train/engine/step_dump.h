// One rank's dump of one training step (train --dump-step): weights before the step; inputs, activations, and gradients
// that layers add to the stream's dump; the reduced gradients of parameters; and the results of the update.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace ringtrain {

class Batch;  // data/batch.h
struct Config;
struct DumpIndex;  // framework/dump/dump_index.h
enum class Part;
class RankState;   // train/engine/rank_state.h
class TensorDump;  // framework/dump/tensor_dump.h

/// The dump that the user requests from a run.
struct DumpRequest {
  std::string folder;  // "": no dump
  std::int64_t step = 0;
  bool update = false;  // also dumps the optimizer's state before the step, and the weights that the step makes
  std::function<bool(const std::string& name)> wanted = {};  // which tensors; empty: all, and logged
};

/// Returns the index of a dump of a config's step, without tensors.
DumpIndex dump_index_of(const Config& config, std::int64_t step);

class StepDump {
 public:
  /// If step is the request's: dumps the weights, and what layers add to the rank's stream until finish(). Otherwise
  /// every call of this class does nothing. state, config, and request must outlive it.
  StepDump(RankState& state, const Config& config, const DumpRequest& request, std::int64_t step);
  ~StepDump();
  StepDump(const StepDump&) = delete;
  StepDump& operator=(const StepDump&) = delete;

  /// Begins a micro-batch, whose sequences start at index first_sequence of the step's.
  void begin_micro_batch(const Batch& batch, std::int64_t first_sequence);
  /// Dumps the reduced gradients of this rank's slices: no more tensors of tokens follow.
  void end_of_gradients();
  /// If the request wants the update: dumps the weights of this rank's slices as the optimizer left them ("updated."),
  /// and those of other ranks' slices as this rank has received them ("gathered.").
  void end_of_update();
  /// Writes the rest. Collective. Returns the line that rank 0 logs; "" if nothing was dumped.
  std::string finish();

 private:
  /// Dumps this rank's part of one tensor for each parameter that is trained, or frozen: view_of(slice) of the slice
  /// that slices_of(parameter's id) holds, if any.
  template <class Slices, class View>
  void write_parameters(Part part, const std::string& prefix, const Slices& slices_of, const View& view_of);
  template <class View>
  void write_own(const std::string& prefix, const View& view_of);

  RankState& state_;
  const Config& config_;
  const DumpRequest& request_;
  std::unique_ptr<TensorDump> dump_;  // null if this is another step
};

}  // namespace ringtrain
