// The reader of framework/storage/hdf5_file.h, and what it shares with the writer. No HDF5 library here.
#include <algorithm>
#include <bit>
#include <utility>

#include "framework/storage/hdf5_file.h"
#include "framework/storage/hdf5_header.h"

namespace ringtrain {

static_assert(std::endian::native == std::endian::little, "datasets are copied between file and memory as they are");

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

}  // namespace

std::size_t size_of(Hdf5Type type) {
  return types[static_cast<std::size_t>(type)].bytes;
}

const char* name_of(Hdf5Type type) {
  return types[static_cast<std::size_t>(type)].name;
}

Hdf5Type hdf5_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return Hdf5Type::float32;
    case DType::float64:
      return Hdf5Type::float64;
    case DType::int32:
      return Hdf5Type::int32;
    case DType::int64:
      return Hdf5Type::int64;
    case DType::uint8:
      return Hdf5Type::uint8;
    case DType::bfloat16:
      break;
  }
  fail(ExitCode::internal, "internal error: {} has no file type", name_of(dtype));
}

std::int64_t Hdf5Dataset::count() const {
  std::int64_t product = 1;
  for (const std::int64_t dim : dims) product *= dim;
  return product;
}

std::int64_t Hdf5Dataset::bytes() const {
  return count() * static_cast<std::int64_t>(size_of(type));
}

// ---- Hdf5Reader ----------------------------------------------------------------------------------------------------

Hdf5Reader Hdf5Reader::open(const std::string& path, ExitCode code, const std::string& remedy) {
  return open(File::open(path, code), code, remedy);
}

Hdf5Reader Hdf5Reader::open(File file, ExitCode code, const std::string& remedy) {
  Hdf5Reader reader;
  reader.file_ = std::move(file);
  reader.code_ = code;
  Hdf5Layout layout = read_hdf5_layout(reader.file_, code, remedy);
  reader.datasets_ = std::move(layout.datasets);
  reader.attributes_ = std::move(layout.attributes);
  return reader;
}

const Hdf5Dataset* Hdf5Reader::find(const std::string& name) const {
  const auto found = std::lower_bound(datasets_.begin(), datasets_.end(), name,
                                      [](const Hdf5Dataset& one, const std::string& key) { return one.name < key; });
  return found != datasets_.end() && found->name == name ? &*found : nullptr;
}

const Hdf5Value& Hdf5Reader::attribute(const std::string& name) const {
  const auto found = attributes_.find(name);
  if (found == attributes_.end()) fail(code_, "{} has no attribute {}; it is of another kind", path(), name);
  return found->second;
}

std::int64_t Hdf5Reader::integer(const std::string& name) const {
  const auto* value = std::get_if<std::int64_t>(&attribute(name));
  if (!value) fail(code_, "attribute {} of {} is no integer", name, path());
  return *value;
}

double Hdf5Reader::number(const std::string& name) const {
  const auto* value = std::get_if<double>(&attribute(name));
  if (!value) fail(code_, "attribute {} of {} is no number", name, path());
  return *value;
}

const std::string& Hdf5Reader::text(const std::string& name) const {
  const auto* value = std::get_if<std::string>(&attribute(name));
  if (!value) fail(code_, "attribute {} of {} is no text", name, path());
  return *value;
}

void Hdf5Reader::read(const Hdf5Dataset& dataset, std::int64_t begin, void* data, std::int64_t count) const {
  ensure(begin >= 0 && count >= 0 && count <= dataset.count() - begin, "a slice within the dataset");
  const auto element = static_cast<std::int64_t>(size_of(dataset.type));
  file_.read_at(dataset.offset + begin * element, data, static_cast<std::size_t>(count * element));
}

}  // namespace ringtrain
