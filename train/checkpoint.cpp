#include "train/checkpoint.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "framework/files.h"
#include "framework/hdf5_file.h"
#include "kernels/elementwise.h"
#include "train/slow_section.h"

namespace ringtrain {

namespace {

constexpr const char* state_name = "state.h5";
constexpr const char* config_name = "config.yaml";

enum class Kind : std::size_t { weight, first_moment, second_moment };
constexpr std::array kinds{"weights/", "first_moment/", "second_moment/"};

std::string dataset_name(Kind kind, const Parameter& parameter) {
  return kinds[static_cast<std::size_t>(kind)] + parameter.name;
}

/// Return the datasets of a model's state; that of (kind, parameter) stands at kind * parameters + parameter.
std::vector<Hdf5Dataset> state_datasets(const ParameterTable& table, DType dtype) {
  std::vector<Hdf5Dataset> datasets;
  for (const Kind kind : {Kind::weight, Kind::first_moment, Kind::second_moment}) {
    for (const Parameter& parameter : table.all()) {
      Hdf5Dataset dataset{dataset_name(kind, parameter), hdf5_type(dtype), {}, 0};
      for (int i = 0; i < parameter.shape.rank(); ++i) dataset.dims.push_back(parameter.shape[i]);
      datasets.push_back(std::move(dataset));
    }
  }
  return datasets;
}

/// Calls body(begin, end) for pieces of [begin, end) that the staging buffer holds.
void in_pieces(std::int64_t begin, std::int64_t end, const std::function<void(std::int64_t, std::int64_t)>& body) {
  for (std::int64_t at = begin; at < end; at += RankState::staging_elements) {
    body(at, std::min(end, at + RankState::staging_elements));
  }
}

/// Collective: brings every rank's moments to rank 0, which hands them to the writer, slice by slice in rank order
/// within each group, so that no rank waits longer than a group takes.
void gather_moments(RankState& state, Hdf5Writer* writer) {
  const ParameterTable& table = state.parameters.table();
  const auto parameters = table.all().size();
  const int ranks = state.mesh.size();
  std::vector<std::vector<ParameterSlice>> slices;
  for (int rank = 0; rank < ranks; ++rank) slices.push_back(owned_slices(table, ranks, rank));
  std::vector<std::size_t> next(static_cast<std::size_t>(ranks), 0);
  const CallSite site{"gather of optimizer moments"};

  const auto move_slice = [&](int owner, const ParameterSlice& slice, Kind kind) {
    const auto dataset = static_cast<std::size_t>(kind) * parameters + static_cast<std::size_t>(slice.parameter);
    in_pieces(0, slice.count(), [&](std::int64_t begin, std::int64_t end) {
      const TensorView staging = state.staging.view().prefix({end - begin});
      TensorView own;
      if (state.rank == owner) {
        const TensorView moment =
            kind == Kind::first_moment ? state.optimizer->first_moment(slice) : state.optimizer->second_moment(slice);
        own = moment.flat(begin, end);
      }
      if (owner == 0) {
        if (state.rank == 0) copy(state.stream, staging, own);
      } else if (state.rank == owner) {
        state.world->wait(state.world->exchange(own, 0, {}, no_peer, site));
      } else if (state.rank == 0) {
        state.world->wait(state.world->exchange({}, no_peer, staging, owner, site));
      }
      if (writer) writer->write(dataset, slice.begin + begin, staging.data, end - begin);
    });
  };

  for (int group = 0; group < table.groups(); ++group) {
    for (int owner = 0; owner < ranks; ++owner) {
      const auto& list = slices[static_cast<std::size_t>(owner)];
      std::size_t& i = next[static_cast<std::size_t>(owner)];
      for (; i < list.size() && table[list[i].parameter].group == group; ++i) {
        move_slice(owner, list[i], Kind::first_moment);
        move_slice(owner, list[i], Kind::second_moment);
      }
    }
  }
}

void write_weights(RankState& state, Hdf5Writer& writer) {
  const auto& all = state.parameters.table().all();
  for (std::size_t id = 0; id < all.size(); ++id) {
    const TensorView weight = state.parameters.weight(static_cast<int>(id));
    in_pieces(0, weight.numel(), [&](std::int64_t begin, std::int64_t end) {
      const TensorView staging = state.staging.view().prefix({end - begin});
      copy(state.stream, staging, weight.flat(begin, end));
      writer.write(id, begin, staging.data, end - begin);
    });
  }
}

/// Return the dataset of a parameter after checking that it has the parameter's shape and type.
const Hdf5Dataset& matching_dataset(const Hdf5Reader& reader, Kind kind, const Parameter& parameter, DType dtype) {
  const std::string name = dataset_name(kind, parameter);
  const Hdf5Dataset* dataset = reader.find(name);
  if (!dataset) fail(ExitCode::checkpoint, "{}: has no {}; it is the state of another model", reader.path(), name);
  bool same = static_cast<int>(dataset->dims.size()) == parameter.shape.rank();
  for (int i = 0; same && i < parameter.shape.rank(); ++i) {
    same = dataset->dims[static_cast<std::size_t>(i)] == parameter.shape[i];
  }
  if (!same) {
    std::string dims;
    for (const std::int64_t dim : dataset->dims) dims += (dims.empty() ? "" : ", ") + std::to_string(dim);
    fail(ExitCode::checkpoint, "{}: {} has shape [{}], but this model's has {}", reader.path(), name, dims,
         parameter.shape.to_string());
  }
  if (dataset->type != hdf5_type(dtype)) {
    fail(ExitCode::checkpoint, "{}: {} is {}, but training.dtype is {}", reader.path(), name, name_of(dataset->type),
         name_of(dtype));
  }
  return *dataset;
}

/// Reads elements [first, first + target.numel()) of a dataset.
void read_into(RankState& state, const Hdf5Reader& reader, const Hdf5Dataset& dataset, std::int64_t first,
               const TensorView& target) {
  in_pieces(0, target.numel(), [&](std::int64_t begin, std::int64_t end) {
    const TensorView staging = state.staging.view().prefix({end - begin});
    reader.read(dataset, first + begin, staging.data, end - begin);
    copy(state.stream, target.flat(begin, end), staging);
  });
}

}  // namespace

void save_checkpoint(RankState& state, const CheckpointFolder& folder, CheckpointManifest manifest,
                     const Config& config) {
  const std::string partial = folder.partial(manifest.step);
  std::optional<Hdf5Writer> writer;
  try {
    if (state.rank == 0) {
      remove_tree(partial, ExitCode::checkpoint);
      make_directories(partial, ExitCode::checkpoint);
      writer = Hdf5Writer::create(partial + "/" + state_name,
                                  state_datasets(state.parameters.table(), config.training.dtype),
                                  {{"format_version", std::int64_t{1}}, {"step", manifest.step}}, ExitCode::checkpoint);
      write_weights(state, *writer);
    }
    gather_moments(state, writer ? &*writer : nullptr);
    run_on_rank_zero(*state.world, [&] {
      writer->finish();
      write_file(partial + "/" + config_name, to_yaml(config), ExitCode::checkpoint);
      manifest.files = {describe_file(partial, state_name), describe_file(partial, config_name)};
      write_file(partial + "/manifest.json", to_json(manifest), ExitCode::checkpoint);
      sync_directory(partial, ExitCode::checkpoint);
      folder.publish(manifest.step);
    });
  } catch (...) {
    if (state.rank == 0) {
      writer.reset();
      try {
        remove_tree(partial, ExitCode::checkpoint);
      } catch (const Error&) {  // the first error is the one to tell; the next save removes what is left
      }
    }
    throw;
  }
}

void load_weights(RankState& state, const Checkpoint& checkpoint) {
  const Hdf5Reader reader = Hdf5Reader::open(checkpoint.path + "/" + state_name, ExitCode::checkpoint);
  const TensorView all = state.parameters.all_weights();
  fill(state.stream, all, 0);  // the padding
  const auto& table = state.parameters.table().all();
  for (std::size_t id = 0; id < table.size(); ++id) {
    const TensorView weight = state.parameters.weight(static_cast<int>(id));
    read_into(state, reader, matching_dataset(reader, Kind::weight, table[id], all.dtype), 0, weight.flat());
  }
}

void load_moments(RankState& state, const Checkpoint& checkpoint) {
  const Hdf5Reader reader = Hdf5Reader::open(checkpoint.path + "/" + state_name, ExitCode::checkpoint);
  const ParameterTable& table = state.parameters.table();
  const DType dtype = state.parameters.all_weights().dtype;
  for (const ParameterSlice& slice : state.optimizer->slices()) {
    const Parameter& parameter = table[slice.parameter];
    read_into(state, reader, matching_dataset(reader, Kind::first_moment, parameter, dtype), slice.begin,
              state.optimizer->first_moment(slice));
    read_into(state, reader, matching_dataset(reader, Kind::second_moment, parameter, dtype), slice.begin,
              state.optimizer->second_moment(slice));
  }
}

}  // namespace ringtrain
