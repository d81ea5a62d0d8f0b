#include "framework/dump/dump_reader.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "framework/text/text_reader.h"

namespace ringtrain {

namespace {

template <class T>
std::vector<T> read_all(const File& file, const Hdf5Dataset& dataset) {
  std::vector<T> elements(dataset.count());
  file.read_at(dataset.offset, elements.data(), static_cast<std::size_t>(dataset.bytes()));
  return elements;
}

template <class T>
std::vector<double> as_doubles(const std::vector<T>& elements) {
  return {elements.begin(), elements.end()};
}

/// Returns the number between `begin` and `end` of a dataset's name; -1 if there is none.
std::int64_t number_in(const std::string& name, std::size_t begin, std::size_t end) {
  return number_of<std::int64_t>(std::string_view(name).substr(begin + 1, end - begin - 1)).value_or(-1);
}

}  // namespace

DumpReader::DumpReader(const std::string& folder) : folder_(folder), index_(read_dump_index(folder, ExitCode::data)) {
  if (index_.tensors.empty()) refuse("it is incomplete");
  for (const std::string& name : list_directory(folder, ExitCode::data)) {
    if (const std::optional<int> rank = rank_of_dump_part(name)) {
      const std::string path = fmt::format("{}/{}", folder, name);
      add({*rank, File::open(path, ExitCode::data), read_dataset_list(path, ExitCode::data).datasets});
    }
  }
}

void DumpReader::add(Part part) {
  const std::vector<Hdf5Dataset>& datasets = part.datasets;
  for (std::size_t i = 0; i < datasets.size(); ++i) {
    const std::string& name = datasets[i].name;
    const bool slice = name.ends_with(']');
    const std::size_t cut = name.rfind(slice ? '[' : '/');
    const std::int64_t at = cut == std::string::npos ? -1 : number_in(name, cut, name.size() - (slice ? 1 : 0));
    if (at < 0) refuse(fmt::format("{} of {} is not a name that a dump gives a tensor", name, part.file.path()));
    if (name.starts_with("rows/")) {
      if (datasets[i].type != Hdf5Type::int64) refuse(fmt::format("{} of {} must be int64", name, part.file.path()));
      rows_[{part.rank, at}] = read_all<std::int64_t>(part.file, datasets[i]);
    } else {
      pieces_[name.substr(0, cut)].push_back({parts_.size(), i, at});
    }
  }
  parts_.push_back(std::move(part));
}

const DumpedTensor* DumpReader::find(const std::string& name) const {
  const auto found = std::ranges::find(index_.tensors, name, &DumpedTensor::name);
  return found == index_.tensors.end() ? nullptr : &*found;
}

const std::vector<DumpReader::Piece>& DumpReader::pieces_of(const DumpedTensor& tensor) const {
  const auto found = pieces_.find(tensor.name);
  if (found == pieces_.end()) refuse(tensor.name + " is missing");
  return found->second;
}

const std::vector<std::int64_t>& DumpReader::rows_of(const Piece& piece) const {
  const auto found = rows_.find({parts_[piece.file].rank, piece.at});
  const Hdf5Dataset& dataset = dataset_of(piece);
  if (found == rows_.end() || dataset.dims.empty() || std::ssize(found->second) != dataset.dims[0]) {
    refuse(fmt::format("some row numbers of {} in {} are missing", dataset.name, parts_[piece.file].file.path()));
  }
  return found->second;
}

std::vector<double> DumpReader::elements_of(const Piece& piece) const {
  const File& file = parts_[piece.file].file;
  const Hdf5Dataset& dataset = dataset_of(piece);
  if (dataset.type == Hdf5Type::float64) return read_all<double>(file, dataset);
  if (dataset.type == Hdf5Type::float32) return as_doubles(read_all<float>(file, dataset));
  if (dataset.type == Hdf5Type::int32) return as_doubles(read_all<std::int32_t>(file, dataset));
  refuse(fmt::format("{} of {} has the type {}, which no dump has", dataset.name, file.path(), name_of(dataset.type)));
}

/// Collects elements of a tensor that are read in pieces, each exactly once, counted from `first`.
class DumpReader::Collected {
 public:
  Collected(const DumpReader& reader, const DumpedTensor& tensor, std::int64_t first, std::int64_t count)
      : reader_(reader), tensor_(tensor), first_(first), values_(count), there_(values_.size()) {}
  void location(std::int64_t element, std::span<const double> values) {
    for (const double value : values) {
      const std::int64_t at = element++ - first_;
      if (there_[at]) reader_.refuse(fmt::format("element {} of {} appears twice", first_ + at, tensor_.name));
      there_[at] = true;
      values_[at] = value;
    }
    placed_ += std::ssize(values);
  }
  /// Returns all elements.
  std::vector<double> take() {
    if (placed_ < std::ssize(values_)) {
      reader_.refuse(fmt::format("it holds only {} of the {} elements of {}", placed_, values_.size(), tensor_.name));
    }
    return std::move(values_);
  }

 private:
  const DumpReader& reader_;
  const DumpedTensor& tensor_;
  std::int64_t first_, placed_ = 0;
  std::vector<double> values_;
  std::vector<bool> there_;
};

std::vector<double> DumpReader::read(const DumpedTensor& tensor) const {
  if (tensor.kind == DumpKind::tokens) return read_tokens(tensor, 0, index_.sequences * index_.sequence_length);
  Collected result(*this, tensor, 0, tensor.shape.numel());
  for (const Piece& piece : pieces_of(tensor)) {
    const std::vector<double> values = elements_of(piece);
    if (piece.at < 0 || std::ssize(values) > tensor.shape.numel() - piece.at) {
      refuse(fmt::format("{} has more elements than its shape", tensor.name));
    }
    result.location(piece.at, values);
  }
  return result.take();
}

std::vector<double> DumpReader::read_tokens(const DumpedTensor& tensor, std::int64_t first, std::int64_t last) const {
  const std::int64_t width = tensor.shape.numel(), tokens = index_.sequences * index_.sequence_length;
  Collected result(*this, tensor, first * width, (last - first) * width);
  for (const Piece& piece : pieces_of(tensor)) {
    const std::vector<std::int64_t>& rows = rows_of(piece);
    const auto asked = [&](std::int64_t row) { return row >= first && row < last; };
    for (const std::int64_t row : rows) {
      if (row < 0 || row >= tokens) {
        refuse(fmt::format("{} has a row {}, but the step has {} tokens", tensor.name, row, tokens));
      }
    }
    if (std::ranges::none_of(rows, asked)) continue;
    const std::vector<double> values = elements_of(piece);
    if (std::ssize(rows) * width != std::ssize(values)) refuse(fmt::format("{} has wrong-sized rows", tensor.name));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!asked(rows[i])) continue;
      const auto size = static_cast<std::size_t>(width);
      result.location(rows[i] * width, std::span(values).subspan(i * size, size));
    }
  }
  return result.take();
}

int DumpReader::rank_of(const DumpedTensor& tensor, std::int64_t element) const {
  for (const Piece& piece : pieces_of(tensor)) {
    const bool holds = tensor.kind == DumpKind::parameter
                           ? element >= piece.at && element < piece.at + dataset_of(piece).count()
                           : std::ranges::find(rows_of(piece), element / tensor.shape.numel()) != rows_of(piece).end();
    if (holds) return parts_[piece.file].rank;
  }
  refuse(fmt::format("element {} of {} is missing", element, tensor.name));
}

void DumpReader::refuse(const std::string& what) const {
  fail(ExitCode::data, "{}: is damaged: {}; make the dump again", folder_, what);
}

}  // namespace ringtrain
