#include "train/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "framework/storage/hdf5_file.h"
#include "kernels/elementwise.h"
#include "train/checkpoint/state_files.h"
#include "train/engine/finite.h"

namespace ringtrain {

namespace {

/// Calls body(begin, end) for pieces of [0, count) that fit in the staging buffer.
void in_pieces(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body) {
  for (std::int64_t at = 0; at < count; at += RankState::staging_elements) {
    body(at, std::min(count, at + RankState::staging_elements));
  }
}

/// Returns the dataset that holds a slice's values of a kind.
Hdf5Dataset dataset_of(const RankState& state, std::size_t kind, const ParameterSlice& slice) {
  const Parameter& parameter = state.parameters.table()[slice.parameter];
  Hdf5Dataset dataset{tensor_name(state_kinds[kind], parameter), hdf5_type(state.state_dtype()), {}, 0};
  if (slice.count() == parameter.shape.numel()) {
    dataset.dims = parameter.shape.dims();
  } else {
    dataset.name += fmt::format("[{}:{}]", slice.begin, slice.end);
    dataset.dims = {slice.count()};
  }
  return dataset;
}

/// Returns whether a slice belongs to a frozen parameter: it has no optimizer state, and never changes.
bool is_frozen(const RankState& state, const ParameterSlice& slice) {
  return !state.parameters.trains(slice.parameter);
}

/// Returns the slices in a rank's file, in file order, each with its kind of values: an index into state_kinds.
std::vector<std::pair<std::size_t, ParameterSlice>> saved_slices(const RankState& state) {
  std::vector<std::pair<std::size_t, ParameterSlice>> slices;
  for (std::size_t kind = 0; kind < state_kinds.size(); ++kind) {
    for (const ParameterSlice& slice : state.optimizer->slices()) slices.emplace_back(kind, slice);
    if (kind > 0) continue;  // frozen parameters only have weights
    for (const ParameterSlice& slice : state.parameters.frozen_slices()) {
      if (state.parameters.table()[slice.parameter].saved) slices.emplace_back(kind, slice);
    }
  }
  return slices;
}

/// Returns a view of a slice's current values of a kind.
TensorView live_values(const RankState& state, std::size_t kind, const ParameterSlice& slice) {
  if (is_frozen(state, slice)) return state.parameters.weights(slice);
  return kind == 0 ? state.optimizer->weights(slice) : state.optimizer->state(kind - 1, slice);
}

/// Returns a view of the snapshot's copy of them.
TensorView saved_values(const RankState& state, std::size_t kind, const ParameterSlice& slice) {
  if (is_frozen(state, slice)) return state.frozen_snapshot.view().flat(slice.offset, slice.offset + slice.count());
  return state.snapshot[kind].view().flat(slice.offset, slice.offset + slice.count());
}

/// Returns values on the host in a checkpoint's dtype. If they are not already, it uses the staging buffer: it copies a
/// device's values, and widens bfloat16.
TensorView as_saved(RankState& state, const TensorView& values) {
  const TensorView staging = state.staging.view().prefix(values.shape);
  if (values.device.is_cpu() && values.dtype == staging.dtype) return values;
  TensorView narrow = staging;
  narrow.dtype = values.dtype;
  if (values.device.is_cpu()) {
    std::memcpy(narrow.data, values.data, values.bytes());  // another thread may use the stream
  } else {
    copy_in_order(state.stream, narrow, values);
    synchronize(record_event(state.stream));  // Stream::synchronize() would use the timeline, on another thread
  }
  if (values.dtype == staging.dtype) return staging;
  for (std::int64_t i = staging.numel(); i-- > 0;) staging.as<float>()[i] = narrow.as<BFloat16>()[i].value();
  return staging;
}

/// Without this check, a state that overflowed in an update would spoil every run that resumes from it.
void require_finite(const TensorView& values, const std::string& name, std::int64_t step) {
  if (first_not_finite(values) < 0) return;
  fail(ExitCode::numeric, "step {}: {} holds a value that is not finite, so this state is not saved", step, name);
}

}  // namespace

CopyStream::Event take_snapshot(RankState& state, CopyStream& copies) {
  const CopyStream::Event ready = copies.record();
  CopyStream::Event last = ready;
  for (const auto& [kind, slice] : saved_slices(state)) {
    if (is_frozen(state, slice) && state.frozen_snapshot.empty()) continue;
    const TensorView to = saved_values(state, kind, slice), from = live_values(state, kind, slice);
    if (state.stream.on_cuda()) {
      last = copies.copy(to, from, ready, {}, {.name = "snapshot"});
    } else {
      copy_in_order(state.stream, to, from);  // with all threads of the rank
    }
  }
  return last;
}

std::array<CheckpointFile, 2> write_state(RankState& state, const std::string& folder, std::int64_t step) {
  std::vector<Hdf5Dataset> datasets;
  const auto slices = saved_slices(state);
  for (const auto& [kind, slice] : slices) datasets.push_back(dataset_of(state, kind, slice));
  const std::string name = state_file_name(state.rank, state.mesh.size());
  const std::string path = folder + "/" + name;
  // The attributes are for other programs. With them, the file has the same bytes as in earlier versions.
  Hdf5Writer writer = Hdf5Writer::create(path, std::move(datasets),
                                         {{"format_version", std::int64_t{2}}, {"step", step}}, ExitCode::checkpoint);
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const auto& [kind, slice] = slices[i];
    const bool has_copy = !(is_frozen(state, slice) ? state.frozen_snapshot : state.snapshot[kind]).empty();
    const TensorView values = has_copy ? saved_values(state, kind, slice) : live_values(state, kind, slice);
    in_pieces(slice.count(), [&](std::int64_t begin, std::int64_t end) {
      const TensorView piece = as_saved(state, values.flat(begin, end));
      require_finite(piece, writer.datasets()[i].name, step);
      writer.write(i, begin, piece.data, end - begin);
    });
  }
  writer.finish();
  write_dataset_list(path, {step, writer.datasets()}, ExitCode::checkpoint);
  return {describe_file(folder, name), describe_file(folder, dataset_list_path(name))};
}

std::string nonfinite_weights(RankState& state) {
  for (const ParameterSlice& slice : state.optimizer->slices()) {
    const TensorView values = live_values(state, /*kind=*/0, slice);
    bool finite = true;
    in_pieces(slice.count(), [&](std::int64_t begin, std::int64_t end) {
      finite = finite && first_not_finite(as_saved(state, values.flat(begin, end))) < 0;
    });
    if (!finite) return dataset_of(state, /*kind=*/0, slice).name;
  }
  return "";
}

void load_optimizer_state(RankState& state, const Checkpoint& checkpoint) {
  StateFiles files(checkpoint.path, checkpoint.manifest);
  for (const ParameterSlice& slice : state.optimizer->slices()) {
    const Parameter& parameter = state.parameters.table()[slice.parameter];
    for (std::size_t i = 0; i < optimizer_state.size(); ++i) {
      const TensorView to = state.optimizer->state(i, slice);
      in_pieces(slice.count(), [&](std::int64_t begin, std::int64_t end) {
        const TensorView staging = state.staging.view().prefix({end - begin});
        files.read(optimizer_state[i], parameter, state.state_dtype(), slice.begin + begin, staging);
        state.copy_staged(to.flat(begin, end), staging);
      });
    }
  }
}

}  // namespace ringtrain
