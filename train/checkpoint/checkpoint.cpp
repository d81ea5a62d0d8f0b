#include "train/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "framework/storage/files.h"
#include "framework/storage/hdf5_file.h"
#include "kernels/elementwise.h"
#include "layers/model_parameters.h"

namespace ringtrain {

namespace {

enum class Kind : std::int64_t { weight, first_moment, second_moment };
constexpr std::array all_kinds{Kind::weight, Kind::first_moment, Kind::second_moment};
constexpr std::array<const char*, 3> kind_names{"weights/", "first_moment/", "second_moment/"};

std::string tensor_name(Kind kind, const Parameter& parameter) {
  return kind_names[static_cast<std::size_t>(kind)] + parameter.name;
}

/// Calls body(begin, end) for pieces of [begin, end) that the staging buffer holds.
void in_pieces(std::int64_t begin, std::int64_t end, const std::function<void(std::int64_t, std::int64_t)>& body) {
  for (std::int64_t at = begin; at < end; at += RankState::staging_elements) {
    body(at, std::min(end, at + RankState::staging_elements));
  }
}

// ---- Saving --------------------------------------------------------------------------------------------------------

/// Return the dataset that holds a slice of a tensor.
Hdf5Dataset dataset_of(Kind kind, const Parameter& parameter, const ParameterSlice& slice, DType dtype) {
  Hdf5Dataset dataset{tensor_name(kind, parameter), hdf5_type(dtype), {}, 0};
  if (slice.count() == parameter.shape.numel()) {
    for (int i = 0; i < parameter.shape.rank(); ++i) dataset.dims.push_back(parameter.shape[i]);
  } else {
    dataset.name += fmt::format("[{}:{}]", slice.begin, slice.end);
    dataset.dims = {slice.count()};
  }
  return dataset;
}

/// Return where a slice's values of a kind are now.
TensorView live_values(const RankState& state, Kind kind, const ParameterSlice& slice) {
  switch (kind) {
    case Kind::weight:
      return state.optimizer->weights(slice);
    case Kind::first_moment:
      return state.optimizer->first_moment(slice);
    case Kind::second_moment:
      return state.optimizer->second_moment(slice);
  }
  return {};
}

/// Return where the snapshot keeps them.
TensorView kept_values(const RankState& state, Kind kind, const ParameterSlice& slice) {
  const std::int64_t first = static_cast<std::int64_t>(kind) * state.optimizer->elements() + slice.moment;
  return state.snapshot.view().flat(first, first + slice.count());
}

template <class T>
bool all_finite(const TensorView& x) {
  const T* const data = x.as<T>();
  T sum = 0;  // stays 0, unless a product with 0 is NaN
  for (std::int64_t i = 0; i < x.numel(); ++i) sum += data[i] * 0;
  return sum == 0;
}

/// A state that overflowed in an update would poison every run that resumes from it.
void require_finite(const TensorView& values, const std::string& name, std::int64_t step) {
  if (values.dtype == DType::float32 ? all_finite<float>(values) : all_finite<double>(values)) return;
  fail(ExitCode::numeric,
       "step {}: {} holds a value that is not finite, so this state is not saved; the last checkpoint is intact; lower "
       "optimizer.lr",
       step, name);
}

// ---- Loading -------------------------------------------------------------------------------------------------------

/// All slices of all files of a checkpoint, by tensor.
/// Return float32 numbers of the host as bfloat16 ones, in the front half of the same memory.
TensorView rounded_in_place(const TensorView& values) {
  const float* const from = values.as<float>();
  TensorView to = values;
  to.dtype = DType::bfloat16;
  for (std::int64_t i = 0; i < values.numel(); ++i) to.as<BFloat16>()[i] = BFloat16::rounded(from[i]);
  return to;
}

class StateFiles {
 public:
  struct Piece {
    std::int64_t begin = 0, end = 0;  // elements of the flattened tensor
    Hdf5Type type = Hdf5Type::uint8;
    std::size_t file = 0;
    std::int64_t offset = 0;  // bytes, in the file
  };

  explicit StateFiles(const Checkpoint& checkpoint) : path_(checkpoint.path) {
    for (const CheckpointFile& file : checkpoint.manifest.files) {
      if (file.name.ends_with(".h5")) add_file(checkpoint.path + "/" + file.name);
    }
    for (auto& [name, pieces] : pieces_) {
      std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    }
  }

  /// Reads elements [first, first + target.numel()) of a tensor into host or device memory, through the state's staging
  /// buffer, rounded if the target is bfloat16.
  void read(RankState& state, Kind kind, const Parameter& parameter, std::int64_t first, const TensorView& target) {
    const std::int64_t end = first + target.numel();
    const DType dtype = state.state_dtype();
    for (const Piece& piece : whole_tensor(kind, parameter, dtype)) {
      in_pieces(std::max(first, piece.begin), std::min(end, piece.end), [&](std::int64_t from, std::int64_t to) {
        const TensorView staging = state.staging.view().prefix({to - from});
        open(piece.file)
            .read_at(piece.offset + (from - piece.begin) * static_cast<std::int64_t>(size_of(dtype)), staging.data,
                     staging.bytes());
        copy(state.stream, target.flat(from - first, to - first),
             target.dtype == DType::bfloat16 ? rounded_in_place(staging) : staging);
        state.stream.synchronize();  // the next piece comes into the same staging
      });
    }
  }

  /// Return the pieces of a tensor after checking that they hold each of its elements once, in the right type.
  const std::vector<Piece>& whole_tensor(Kind kind, const Parameter& parameter, DType dtype) const {
    const std::string name = tensor_name(kind, parameter);
    const auto found = pieces_.find(name);
    if (found == pieces_.end()) {
      fail(ExitCode::checkpoint, "{}: has no {}; it is the state of another model", path_, name);
    }
    std::int64_t end = 0;
    for (const Piece& piece : found->second) {
      if (piece.begin != end) {
        fail(ExitCode::checkpoint, "{}: elements {} to {} of {} are {} in its files", path_, std::min(end, piece.begin),
             std::max(end, piece.begin), name, piece.begin > end ? "nowhere" : "twice");
      }
      if (piece.type != hdf5_type(dtype)) {
        fail(ExitCode::checkpoint, "{}: {} is {}, but training.dtype is {}", path_, name, name_of(piece.type),
             name_of(dtype));
      }
      end = piece.end;
    }
    if (end != parameter.shape.numel()) {
      fail(ExitCode::checkpoint, "{}: {} has {} elements, but this model's has {} ({})", path_, name, end,
           parameter.shape.numel(), parameter.shape.to_string());
    }
    return found->second;
  }

 private:
  void add_file(const std::string& path) {
    const Hdf5Reader reader = Hdf5Reader::open(path, ExitCode::checkpoint,
                                               "an earlier version of this program made it so, or another program: use "
                                               "it with that one, or train anew into another --output");
    for (const Hdf5Dataset& dataset : reader.datasets()) {
      Piece piece{0, dataset.count(), dataset.type, paths_.size(), dataset.offset};
      std::string name = dataset.name;
      if (const std::size_t bracket = name.find('['); bracket != std::string::npos) {
        read_range(path, name, bracket, piece);
        name.resize(bracket);
      }
      pieces_[name].push_back(piece);
    }
    paths_.push_back(path);
  }

  /// Takes "[BEGIN:END]" from a dataset's name.
  static void read_range(const std::string& path, const std::string& name, std::size_t bracket, Piece& piece) {
    const std::int64_t count = piece.end;
    const char* const last = name.data() + name.size();
    const auto begin = std::from_chars(name.data() + bracket + 1, last, piece.begin);
    bool good = begin.ec == std::errc{} && begin.ptr != last && *begin.ptr == ':' && piece.begin >= 0;
    if (good) {
      const auto end = std::from_chars(begin.ptr + 1, last, piece.end);
      good = end.ec == std::errc{} && last - end.ptr == 1 && *end.ptr == ']' && piece.end >= piece.begin &&
             piece.end - piece.begin == count;
    }
    if (!good) {
      fail(ExitCode::checkpoint, "{}: its dataset {} has {} elements, which is not what its name says", path, name,
           count);
    }
  }

  /// One file is open at a time: a checkpoint may have more files than a process may open.
  const File& open(std::size_t file) {
    if (!open_.is_open() || open_.path() != paths_[file]) open_ = File::open(paths_[file], ExitCode::checkpoint);
    return open_;
  }

  std::string path_;
  std::vector<std::string> paths_;
  std::map<std::string, std::vector<Piece>> pieces_;
  File open_;
};

}  // namespace

std::string state_file_name(int rank, int ranks) {
  return fmt::format("state-{:05}-of-{:05}.h5", rank, ranks);
}

void take_snapshot(RankState& state) {
  for (const Kind kind : all_kinds) {
    for (const ParameterSlice& slice : state.optimizer->slices()) {
      copy_in_order(state.stream, kept_values(state, kind, slice), live_values(state, kind, slice));
    }
  }
}

CheckpointFile write_state(RankState& state, const std::string& folder, std::int64_t step) {
  const ParameterTable& table = state.parameters.table();
  const DType dtype = state.state_dtype();
  std::vector<Hdf5Dataset> datasets;
  std::vector<std::pair<Kind, ParameterSlice>> sources;  // of each dataset
  for (const Kind kind : all_kinds) {
    for (const ParameterSlice& slice : state.optimizer->slices()) {
      datasets.push_back(dataset_of(kind, table[slice.parameter], slice, dtype));
      sources.emplace_back(kind, slice);
    }
  }
  const std::string name = state_file_name(state.rank, state.mesh.size());
  Hdf5Writer writer = Hdf5Writer::create(folder + "/" + name, std::move(datasets),
                                         {{"format_version", std::int64_t{2}}, {"step", step}}, ExitCode::checkpoint);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto& [kind, slice] = sources[i];
    const TensorView values =
        state.snapshot.empty() ? live_values(state, kind, slice) : kept_values(state, kind, slice);
    in_pieces(0, slice.count(), [&](std::int64_t begin, std::int64_t end) {
      TensorView piece = values.flat(begin, end);
      if (state.snapshot.empty()) {
        const TensorView staging = state.staging.view().prefix({end - begin});
        copy(state.stream, staging, piece);
        piece = staging;
      }
      require_finite(piece, writer.datasets()[i].name, step);
      writer.write(i, begin, piece.data, end - begin);
    });
  }
  writer.finish();
  return describe_file(folder, name);
}

void check_state(const Checkpoint& checkpoint) {
  const StateFiles files(checkpoint);
  const ParameterTable table = make_parameter_table(checkpoint.config.model);
  for (const Kind kind : all_kinds) {
    for (const Parameter& parameter : table.all()) {
      files.whole_tensor(kind, parameter, accumulator(checkpoint.config.training.dtype));
    }
  }
}

void verify_checkpoints(const std::string& path, const std::function<void(const std::string&)>& tell) {
  std::vector<std::string> folders{path};
  const CheckpointFolder checkpoints(path + "/checkpoints");
  if (is_directory(checkpoints.path()) && !path_exists(path + "/manifest.json")) {
    folders.clear();
    for (const std::int64_t step : checkpoints.steps()) folders.push_back(checkpoints.complete(step));
    if (folders.empty()) fail(ExitCode::checkpoint, "{}: this run has no checkpoint yet", path);
  }
  std::optional<Error> first;
  for (const std::string& folder : folders) {
    try {
      const Checkpoint checkpoint = open_checkpoint(folder);
      check_state(checkpoint);
      std::int64_t bytes = 0;
      for (const CheckpointFile& file : checkpoint.manifest.files) bytes += file.bytes;
      tell(fmt::format("{}: good: step {}, {} files of {} bytes", folder, checkpoint.manifest.step,
                       checkpoint.manifest.files.size(), bytes));
    } catch (const Error& error) {
      tell(error.what());
      if (!first) first = error;
    }
  }
  if (first) throw Error(*first);
}

void load_weights(RankState& state, const Checkpoint& checkpoint) {
  StateFiles files(checkpoint);
  if (state.optimizer && state.optimizer->has_master_weights()) {
    for (const ParameterSlice& slice : state.optimizer->slices()) {
      files.read(state, Kind::weight, state.parameters.table()[slice.parameter], slice.begin,
                 state.optimizer->weights(slice));
    }
  }
  fill(state.stream, state.parameters.all_weights(), 0);  // the padding
  const auto& table = state.parameters.table().all();
  for (std::size_t id = 0; id < table.size(); ++id) {
    files.read(state, Kind::weight, table[id], 0, state.parameters.weight(static_cast<int>(id)).flat());
  }
}

void load_moments(RankState& state, const Checkpoint& checkpoint) {
  StateFiles files(checkpoint);
  for (const ParameterSlice& slice : state.optimizer->slices()) {
    const Parameter& parameter = state.parameters.table()[slice.parameter];
    files.read(state, Kind::first_moment, parameter, slice.begin, state.optimizer->first_moment(slice));
    files.read(state, Kind::second_moment, parameter, slice.begin, state.optimizer->second_moment(slice));
  }
}

}  // namespace ringtrain
