#include "train/checkpoint/state_files.h"

#include <algorithm>

#include "framework/error.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/stored_tensor.h"
#include "framework/text/text_reader.h"

namespace ringtrain {

namespace {

/// Parses "[BEGIN:END]" in a dataset's name.
void read_range(const std::string& path, const std::string& name, std::size_t bracket, StateFiles::Piece& piece) {
  const std::int64_t count = piece.end;
  std::string_view range = std::string_view(name).substr(bracket + 1);
  const bool closed = range.ends_with(']');
  if (closed) range.remove_suffix(1);
  const bool good = closed && take_pair(range, piece.begin, ':', piece.end) && piece.begin >= 0 &&
                    piece.end >= piece.begin && piece.end - piece.begin == count;
  if (!good) {
    fail(ExitCode::checkpoint, "{}: its dataset {} has {} elements, which does not match the range in its name", path,
         name, count);
  }
}

}  // namespace

std::string tensor_name(const std::string& kind, const Parameter& parameter) {
  return kind + "/" + parameter.name;
}

StateFiles::StateFiles(const std::string& folder, const CheckpointManifest& manifest)
    : path_(folder), files_(manifest.files), step_(manifest.step) {
  for (std::size_t file = 0; file + 1 < files_.size(); file += 2) add_file(file);  // the last file is the config
  for (auto& [name, pieces] : pieces_) std::ranges::sort(pieces, {}, &Piece::begin);
}

const std::vector<StateFiles::Piece>& StateFiles::whole_tensor(const std::string& kind, const Parameter& parameter,
                                                               DType dtype) const {
  const std::string name = tensor_name(kind, parameter);
  const auto found = pieces_.find(name);
  if (found == pieces_.end()) {
    fail(ExitCode::checkpoint, "{}: has no {}; it is the state of another model", path_, name);
  }
  std::int64_t end = 0;
  for (const Piece& piece : found->second) {
    if (piece.begin != end) {
      fail(ExitCode::checkpoint, "{}: elements {} to {} of {} are {} its files", path_, std::min(end, piece.begin),
           std::max(end, piece.begin), name, piece.begin > end ? "missing from" : "stored twice in");
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

void StateFiles::add_file(std::size_t file) {
  const std::string list_path = path_ + "/" + files_[file + 1].name;
  const DatasetList found = read_dataset_list(path_ + "/" + files_[file].name, ExitCode::checkpoint);
  if (found.step != step_) {
    fail(ExitCode::checkpoint,
         "{}: is from step {}, but the folder's manifest is from step {}: the folder mixes two checkpoints", list_path,
         found.step.value_or(0), step_);
  }
  for (const Hdf5Dataset& dataset : found.datasets) {
    Piece piece{0, dataset.count(), dataset.type, file, dataset.offset};
    std::string name = dataset.name;
    if (const std::size_t bracket = name.find('['); bracket != std::string::npos) {
      read_range(list_path, name, bracket, piece);
      name.resize(bracket);
    }
    pieces_[name].push_back(piece);
  }
  for (const std::size_t i : {file, file + 1}) {
    require_unchanged(File::open(path_ + "/" + files_[i].name, ExitCode::checkpoint), files_[i].stamp.value());
  }
}

void StateFiles::read(const std::string& kind, const Parameter& parameter, DType dtype, std::int64_t begin,
                      const TensorView& to) {
  const std::int64_t end = begin + to.numel();
  for (const Piece& piece : whole_tensor(kind, parameter, dtype)) {
    const std::int64_t from = std::max(begin, piece.begin), until = std::min(end, piece.end);
    if (from < until) read_piece(piece, dtype, from, to.flat(from - begin, until - begin));
  }
}

void StateFiles::read_piece(const Piece& piece, DType dtype, std::int64_t from, const TensorView& to) {
  const std::int64_t offset = piece.offset + (from - piece.begin) * static_cast<std::int64_t>(size_of(dtype));
  if (to.dtype == dtype) return read_bytes(piece.file, offset, to.data, to.bytes());
  bytes_.resize(to.numel() * size_of(dtype));
  read_bytes(piece.file, offset, bytes_.data(), bytes_.size());
  const StoredType type = dtype == DType::float64 ? StoredType::float64 : StoredType::float32;
  dispatch_float(to.dtype, [&]<class Real>() { decode(type, bytes_.data(), to.numel(), to.as<Real>()); });
}

void StateFiles::read_bytes(std::size_t file, std::int64_t offset, void* data, std::size_t bytes) {
  if (!open_.is_open() || opened_ != file) {
    open_ = File::open(path_ + "/" + files_[file].name, ExitCode::checkpoint);
    opened_ = file;
  }
  open_.read_at(offset, data, bytes);
  require_unchanged(open_, files_[file].stamp.value());
}

}  // namespace ringtrain
