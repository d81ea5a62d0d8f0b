// Writes HDF5 files. The library (serial C API) is neither thread-safe nor crash-safe and trusts what it reads, so it
// does one thing: it lays out a fresh file, in short calls under one process-wide mutex. It opens none that exists
// (framework/storage/hdf5_datasets.h says how these are read). The bytes of datasets, all contiguous and allocated
// early, are written at their offsets by the operating system: a checkpoint being written never stalls a loader, and a
// full disk is an error of ours, not a library that cannot close its file. Little-endian on disk and in memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "framework/error.h"
#include "framework/storage/files.h"
#include "framework/storage/hdf5_datasets.h"

namespace ringtrain {

/// An attribute of the file itself.
using Hdf5Value = std::variant<std::int64_t, double, std::string>;
using Hdf5Attributes = std::map<std::string, Hdf5Value>;
/// The longest text of an attribute, in bytes.
inline constexpr std::size_t max_attribute_text = 60000;

/// Where a file is laid out: in one that does not exist yet, or in one that is there and empty.
enum class Hdf5Destination { new_file, empty_file };

/// A fresh file: layout and attributes first, bytes after. Different threads may write different slices.
class Hdf5Writer {
 public:
  Hdf5Writer() = default;  // empty: only to be assigned to
  /// Lays out the file and reserves its bytes. Throws Error(code): a folder that cannot be
  /// written, a full disk (with the bytes needed). An attribute's text has at most max_attribute_text bytes, none NUL.
  static Hdf5Writer create(const std::string& path, std::vector<Hdf5Dataset> datasets, const Hdf5Attributes& attributes,
                           ExitCode code, Hdf5Destination destination = Hdf5Destination::new_file);
  const std::vector<Hdf5Dataset>& datasets() const { return datasets_; }
  /// Writes elements [begin, begin + count) of the dataset'th dataset of create()'s list, from host memory of its type.
  void write(std::size_t dataset, std::int64_t begin, const void* data, std::int64_t count);
  /// fsync and close. What was never written reads as zero.
  void finish();

 private:
  File file_;
  std::vector<Hdf5Dataset> datasets_;
};

}  // namespace ringtrain
