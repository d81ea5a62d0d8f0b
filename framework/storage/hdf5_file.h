// Writes HDF5 files. The library (serial C API) is neither thread-safe nor crash-safe and trusts what it reads, so it
// does one thing: it lays out a new file, in short calls under one process-wide mutex. It never opens an existing file
// (framework/storage/hdf5_datasets.h says how they are read). The bytes of datasets, all contiguous and allocated
// early, are written at their offsets by the operating system. So writing a checkpoint never stalls a loader, and a
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

/// An attribute of the file.
using Hdf5Value = std::variant<std::int64_t, double, std::string>;
using Hdf5Attributes = std::map<std::string, Hdf5Value>;
/// The longest text of an attribute, in bytes.
inline constexpr std::size_t max_attribute_text = 60000;

/// Where a file is laid out: in a file that does not exist yet, or in an existing empty file.
enum class Hdf5Destination { new_file, empty_file };

/// A new file: its layout and attributes are written first, its bytes afterwards. Different threads may write different
/// slices.
class Hdf5Writer {
 public:
  Hdf5Writer() = default;  // empty: only for later assignment
  /// Lays out the file and reserves its bytes. Throws Error(code) if a folder is not writable or the disk is full (with
  /// the bytes needed). An attribute's text has at most max_attribute_text bytes, none of them NUL.
  static Hdf5Writer create(const std::string& path, std::vector<Hdf5Dataset> datasets, const Hdf5Attributes& attributes,
                           ExitCode code, Hdf5Destination destination = Hdf5Destination::new_file);
  const std::vector<Hdf5Dataset>& datasets() const { return datasets_; }
  /// Writes elements [begin, begin + count) of dataset number `dataset` of create()'s list, from host memory of its
  /// type.
  void write(std::size_t dataset, std::int64_t begin, const void* data, std::int64_t count);
  /// Syncs and closes the file. Elements that were never written read as zero.
  void finish();

 private:
  File file_;
  std::vector<Hdf5Dataset> datasets_;
};

}  // namespace ringtrain
