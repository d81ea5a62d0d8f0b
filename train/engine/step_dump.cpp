#include "train/engine/step_dump.h"

#include <utility>
#include <vector>

namespace ringtrain {

DumpIndex dump_index_of(const Config& config, std::int64_t step) {
  return {.step = step,
          .data = config.mesh.data,
          .sequence = config.mesh.sequence,
          .layout = name_of(config.mesh.layout),
          .device = name_of(config.training.device),
          .dtype = name_of(config.training.dtype),
          .sequences = config.training.global_batch_size,
          .sequence_length = config.training.seq_len,
          .tensors = {}};
}

StepDump::StepDump(RankState& state, const Config& config, const DumpRequest& request, std::int64_t step)
    : state_(state), config_(config), folder_(request.folder), step_(step) {
  if (folder_.empty() || step != request.step) return;
  dump_ = std::make_unique<TensorDump>(folder_, state.rank);
  write_parameters("", [&](const ParameterSlice& slice) { return state.optimizer->weights(slice); });
  state.stream.set_dump(dump_.get());
}

StepDump::~StepDump() {
  if (dump_) state_.stream.set_dump(nullptr);
}

template <class View>
void StepDump::write_parameters(const std::string& prefix, const View& view_of) {
  const ParameterTable& table = state_.parameters.table();
  const TensorView nothing = host_view(static_cast<float*>(nullptr), {0});
  auto slice = state_.optimizer->slices().begin();
  const auto end = state_.optimizer->slices().end();
  for (int id = 0; id < static_cast<int>(table.all().size()); ++id) {
    const std::string name = prefix + table[id].name;
    const bool owned = slice != end && slice->parameter == id;  // a rank has one slice of a parameter at most
    dump_->write_slice(state_.stream, name, table[id].shape, owned ? slice->begin : 0,
                       owned ? view_of(*slice) : nothing);
    if (owned) ++slice;
  }
}

void StepDump::begin_micro_batch(const Batch& batch, std::int64_t first_sequence) {
  if (!dump_) return;
  std::vector<std::int64_t> rows;
  for (std::int64_t b = 0; b < batch.B; ++b) {
    for (std::int64_t t = 0; t < batch.T; ++t) {
      rows.push_back((first_sequence + b) * config_.training.seq_len + position_of(batch.segments, t));
    }
  }
  dump_->begin_micro_batch(std::move(rows));
}

std::string StepDump::finish(Communicator& world) {
  if (!dump_) return "";
  state_.stream.set_dump(nullptr);
  write_parameters("grad.", [&](const ParameterSlice& slice) { return state_.parameters.gradients(slice); });
  dump_->finish();
  world.barrier({"end of a dump"});  // the index says that all ranks have written
  if (state_.rank != 0) return "";
  DumpIndex index = dump_index_of(config_, step_);
  index.tensors = dump_->tensors();
  write_dump_index(folder_, index);
  return fmt::format("step {}: {} tensors are in {}, for scripts/compare-dumps", step_, index.tensors.size(), folder_);
}

}  // namespace ringtrain
