// The datasets of an HDF5 file, and the list of them that a reader uses. HDF5's library crashes on damaged files, and
// parsing its headers would need a parser. So no code here opens such a file as HDF5: a list next to it, or a manifest,
// says where the bytes of each dataset are, and they are read from there. Lists may be malicious: each is checked
// against the size of its file before anything is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/dtype.h"
#include "framework/error.h"

namespace ringtrain {

enum class Hdf5Type : std::uint8_t { uint8, uint16, uint32, int32, int64, float32, float64 };
std::size_t size_of(Hdf5Type type);
const char* name_of(Hdf5Type type);
/// Returns the file type of a tensor's elements; bfloat16 has none (an internal Error).
Hdf5Type hdf5_type(DType dtype);

/// A contiguous dataset. Its name may contain '/' for groups, which are created as needed.
struct Hdf5Dataset {
  std::string name;
  Hdf5Type type = Hdf5Type::uint8;
  std::vector<std::int64_t> dims;  // empty: a single element
  std::int64_t offset = 0;         // of its first byte in the file, set by the writer (0 if it is empty)
  std::int64_t count() const;      // elements
  std::int64_t bytes() const;

  template <class Self, class Visit>
  static void visit_members(Self& self, Visit& visit) {
    std::string type = name_of(self.type);
    visit("name", self.name);
    visit("type", type);
    visit("shape", self.dims);
    visit("offset", self.offset);
    if constexpr (!std::is_const_v<Self>) self.take_type(type);
  }
  /// Takes the type from a list. Throws for a type that is none of the above.
  void take_type(const std::string& type_name);
};

/// Returns the dataset with a name; null if there is none.
const Hdf5Dataset* find_dataset(const std::vector<Hdf5Dataset>& datasets, const std::string& name);
/// Throws a std::runtime_error that names the dataset unless datasets with these dimensions, none of which is negative,
/// fit in a file of `file_bytes` bytes: each within the file, and no two with a common byte or name.
void require_within(const std::vector<Hdf5Dataset>& datasets, std::int64_t file_bytes);

/// The list of FILE, in FILE.json.
struct DatasetList {
  std::optional<std::int64_t> step = {};  // of the state of which the file holds a part; empty: no state
  std::vector<Hdf5Dataset> datasets;

  template <class Self, class Visit>
  static void visit_members(Self& self, Visit& visit) {
    visit.optional("step", self.step);
    visit("datasets", self.datasets);
  }
};

std::string dataset_list_path(const std::string& file);
/// Creates the list of a file, which must not exist yet, and brings it to the disk. Throws Error(code).
void write_dataset_list(const std::string& file, const DatasetList& list, ExitCode code);
/// Returns the list of a file after checking it against the file's size. Throws Error(code) that names the list and the
/// problem.
DatasetList read_dataset_list(const std::string& file, ExitCode code);

}  // namespace ringtrain
