#include "framework/storage/hdf5_datasets.h"

#include <algorithm>

#include "framework/storage/files.h"
#include "framework/storage/plain_text.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

struct TypeEntry {
  Hdf5Type type;
  const char* name;
  std::size_t bytes;
};
constexpr TypeEntry types[] = {{Hdf5Type::uint8, "uint8", 1},    {Hdf5Type::uint16, "uint16", 2},
                               {Hdf5Type::uint32, "uint32", 4},  {Hdf5Type::int32, "int32", 4},
                               {Hdf5Type::int64, "int64", 8},    {Hdf5Type::float32, "float32", 4},
                               {Hdf5Type::float64, "float64", 8}};

/// Returns the entry with a name, or the end of types if there is none.
const TypeEntry* find_type(std::string_view name) {
  return std::ranges::find(types, name, [](const TypeEntry& entry) { return std::string_view(entry.name); });
}

constexpr const char* list_format = "ringtrain datasets";
constexpr std::int64_t list_version = 1;

/// Returns the bytes of a dataset. Its dimensions are multiplied only while the product can fit in the file.
std::int64_t bytes_within(const Hdf5Dataset& dataset, std::int64_t file_bytes) {
  const auto element = static_cast<std::int64_t>(size_of(dataset.type)), most = file_bytes / element;
  std::int64_t count = 1;
  for (const std::int64_t dim : dataset.dims) {
    if (dim != 0 && count > most / dim) throw std::runtime_error("is larger than the file");
    count *= dim;
  }
  if (dataset.offset > file_bytes - count * element) throw std::runtime_error("reaches beyond the file's end");
  return count * element;
}

}  // namespace

std::size_t size_of(Hdf5Type type) {
  return types[static_cast<std::size_t>(type)].bytes;
}

const char* name_of(Hdf5Type type) {
  return types[static_cast<std::size_t>(type)].name;
}

Hdf5Type hdf5_type(DType dtype) {
  const TypeEntry* found = find_type(name_of(dtype));
  if (found == std::end(types)) fail(ExitCode::internal, "internal error: {} has no file type", name_of(dtype));
  return found->type;
}

std::int64_t Hdf5Dataset::count() const {
  std::int64_t product = 1;
  for (const std::int64_t dim : dims) product *= dim;
  return product;
}

std::int64_t Hdf5Dataset::bytes() const {
  return count() * static_cast<std::int64_t>(size_of(type));
}

void Hdf5Dataset::take_type(const std::string& type_name) {
  const TypeEntry* found = find_type(type_name);
  if (found == std::end(types)) throw std::runtime_error("type " + plain_text(type_name) + " is unknown");
  type = found->type;
}

const Hdf5Dataset* find_dataset(const std::vector<Hdf5Dataset>& datasets, const std::string& name) {
  const auto found = std::ranges::find(datasets, name, &Hdf5Dataset::name);
  return found == datasets.end() ? nullptr : &*found;
}

void require_within(const std::vector<Hdf5Dataset>& datasets, std::int64_t file_bytes) {
  struct Range {
    std::int64_t begin, end;
  };
  std::vector<std::string> names;
  std::vector<Range> ranges;
  for (const Hdf5Dataset& dataset : datasets) {
    names.push_back(dataset.name);
    try {
      const std::int64_t bytes = bytes_within(dataset, file_bytes);
      if (bytes > 0) ranges.push_back({dataset.offset, dataset.offset + bytes});
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("dataset {} {}", plain_text(dataset.name), error.what()));
    }
  }
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
    throw std::runtime_error(fmt::format("two datasets are called {}", plain_text(*twice)));
  }
  std::ranges::sort(ranges, {}, &Range::begin);
  const auto overlap = [](const Range& a, const Range& b) { return b.begin < a.end; };
  if (const auto shared = std::ranges::adjacent_find(ranges, overlap); shared != ranges.end()) {
    throw std::runtime_error(fmt::format("two datasets share bytes from {} on", shared[1].begin));
  }
}

std::string dataset_list_path(const std::string& file) {
  return file + ".json";
}

void write_dataset_list(const std::string& file, const DatasetList& list, ExitCode code) {
  JsonWriter writer;
  writer("format", list_format);
  writer("format_version", list_version);
  DatasetList::visit_members(list, writer);
  write_new_file(dataset_list_path(file), json_text(writer.json, 1) + "\n", code);
}

DatasetList read_dataset_list(const std::string& file, ExitCode code) {
  const std::string path = dataset_list_path(file), text = read_file(path, code);
  const std::int64_t file_bytes = file_size(file, code);
  try {
    const nlohmann::json json = parse_strict_json(text);
    JsonReader reader(json);
    reader.format(list_format, list_version, "it was written by another version of this program");
    DatasetList list;
    DatasetList::visit_members(list, reader);
    reader.finish();
    require_within(list.datasets, file_bytes);
    return list;
  } catch (const std::exception& error) {
    fail(code, "{}: is damaged: {}", path, error.what());
  }
}

}  // namespace ringtrain
