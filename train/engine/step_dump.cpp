#include "train/engine/step_dump.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/batch.h"
#include "framework/config/config.h"
#include "framework/dump/tensor_dump.h"
#include "train/engine/rank_state.h"

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
    : state_(state), config_(config), request_(request) {
  if (request.folder.empty() || step != request.step) return;
  dump_ = std::make_unique<TensorDump>(request.folder, state.rank);
  if (request.wanted) dump_->choose(request.wanted);
  write_own("", [&](const ParameterSlice& slice) { return state.optimizer->weights(slice); });
  const std::vector<ParameterSlice> frozen = state.parameters.frozen_slices();
  write_parameters(
      Part::frozen, "", [&](int) -> const std::vector<ParameterSlice>& { return frozen; },
      [&](const ParameterSlice& slice) { return state_.parameters.weights(slice); });
  for (std::size_t i = 0; request.update && i < optimizer_state.size(); ++i) {
    write_own(optimizer_state[i] + std::string("."),
              [&](const ParameterSlice& slice) { return state.optimizer->state(i, slice); });
  }
  state.stream.set_dump(dump_.get());
}

StepDump::~StepDump() {
  if (dump_) state_.stream.set_dump(nullptr);
}

template <class Slices, class View>
void StepDump::write_parameters(Part part, const std::string& prefix, const Slices& slices_of, const View& view_of) {
  const ParameterTable& table = state_.parameters.table();
  const TensorView nothing = host_view(static_cast<float*>(nullptr), {0});
  for (int id = 0; id < static_cast<int>(table.all().size()); ++id) {
    if (table[id].part != part) continue;
    const std::vector<ParameterSlice>& slices = slices_of(id);
    // A rank has at most one slice of a parameter.
    const auto slice = std::ranges::lower_bound(slices, id, {}, &ParameterSlice::parameter);
    const bool owned = slice != slices.end() && slice->parameter == id;
    const std::string name = prefix + table[id].name;
    dump_->write_slice(state_.stream, name, table[id].shape, owned ? slice->begin : 0,
                       owned ? view_of(*slice) : nothing);
  }
}

template <class View>
void StepDump::write_own(const std::string& prefix, const View& view_of) {
  const auto slices_of = [this](int) -> const std::vector<ParameterSlice>& { return state_.optimizer->slices(); };
  write_parameters(Part::trainable, prefix, slices_of, view_of);
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

void StepDump::end_of_gradients() {
  if (!dump_) return;
  state_.stream.set_dump(nullptr);
  write_own("grad.", [&](const ParameterSlice& slice) { return state_.parameters.gradients(slice); });
}

void StepDump::end_of_update() {
  if (!dump_ || !request_.update) return;
  write_own("updated.", [&](const ParameterSlice& slice) { return state_.optimizer->weights(slice); });
  // A rank dumps slices that other ranks have updated, for each parameter those of one other rank. Together, the ranks
  // show that updated weights have reached the others.
  const ParameterTable& table = state_.parameters.table();
  const int ranks = state_.mesh.size();
  std::vector<std::vector<ParameterSlice>> slices;
  for (int rank = 0; rank < ranks; ++rank) slices.push_back(owned_slices(table, Part::trainable, ranks, rank));
  std::optional<WeightsGuard> weights;  // all ranks acquire each bucket, because it may be gathered from all of them
  int held = -1;
  const auto of_another = [&](int id) -> const std::vector<ParameterSlice>& {
    if (table[id].bucket != held) {
      weights.reset();
      weights.emplace(state_.parameters, held = table[id].bucket);
    }
    const int further = ranks == 1 ? 0 : 1 + id % (ranks - 1);  // never this rank
    return slices[(state_.rank + further) % ranks];
  };
  write_parameters(Part::trainable, "gathered.", of_another, [&](const ParameterSlice& slice) {
    return state_.parameters.weight(slice.parameter).flat(slice.begin, slice.end);
  });
}

std::string StepDump::finish() {
  if (!dump_) return "";
  dump_->finish();
  state_.world->barrier({"end of a dump"});  // the index says that all ranks have written
  if (state_.rank != 0) return "";
  DumpIndex index = dump_index_of(config_, request_.step);
  index.tensors = dump_->tensors();
  write_dump_index(request_.folder, index);
  if (request_.wanted) return "";
  return fmt::format("step {}: {} tensors are in {}, for check --compare", request_.step, index.tensors.size(),
                     request_.folder);
}

}  // namespace ringtrain
