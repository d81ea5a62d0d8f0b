// HDF5 files. The library (serial C API) is neither thread-safe nor crash-safe and trusts what it reads, so it does one
// thing: it lays out a fresh file, in short calls under one process-wide mutex. Existing files are read by a reader of
// our own (framework/storage/hdf5_header.h). The bytes of datasets, all contiguous and allocated early, are written and
// read at their offsets by the operating system: a checkpoint being written never stalls a loader, and a full disk is
// an error of ours, not a library that cannot close its file. Little-endian on disk and in memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "framework/dtype.h"
#include "framework/error.h"
#include "framework/storage/files.h"

namespace ringtrain {

enum class Hdf5Type : std::uint8_t { uint8, uint16, uint32, int32, int64, float32, float64 };
std::size_t size_of(Hdf5Type type);
const char* name_of(Hdf5Type type);
/// Returns the file type of a tensor's elements; bfloat16 has none (an internal Error).
Hdf5Type hdf5_type(DType dtype);

/// A contiguous dataset. Its name may hold '/': groups, made as needed.
struct Hdf5Dataset {
  std::string name;
  Hdf5Type type = Hdf5Type::uint8;
  std::vector<std::int64_t> dims;  // none: a single element
  std::int64_t offset = 0;         // of its first byte in the file; set by writer and reader (0 if it has no element)
  std::int64_t count() const;      // elements
  std::int64_t bytes() const;
};

/// An attribute of the file itself.
using Hdf5Value = std::variant<std::int64_t, double, std::string>;
using Hdf5Attributes = std::map<std::string, Hdf5Value>;
/// The longest text of an attribute, in bytes.
inline constexpr std::size_t max_attribute_text = 60000;

/// Where a file is laid out: in one that does not exist yet, or in one that is there and empty.
enum class Hdf5Place { new_file, empty_file };

/// A fresh file: layout and attributes first, bytes after. Different threads may write different slices.
class Hdf5Writer {
 public:
  Hdf5Writer() = default;  // empty: only to be assigned to
  /// Lays out the file and reserves its bytes. Throws Error(code): a folder that cannot be
  /// written, a full disk (with the bytes needed). An attribute's text has at most max_attribute_text bytes, none NUL.
  static Hdf5Writer create(const std::string& path, std::vector<Hdf5Dataset> datasets, const Hdf5Attributes& attributes,
                           ExitCode code, Hdf5Place place = Hdf5Place::new_file);
  const std::vector<Hdf5Dataset>& datasets() const { return datasets_; }
  /// Writes elements [begin, begin + count) of the dataset'th dataset of create()'s list, from host memory of its type.
  void write(std::size_t dataset, std::int64_t begin, const void* data, std::int64_t count);
  /// fsync and close. What was never written reads as zero.
  void finish();

 private:
  File file_;
  std::vector<Hdf5Dataset> datasets_;
};

/// An existing file, read-only. It may be hostile: what is not plain is refused, and nothing is read beyond its end.
/// read() may be called from several threads.
class Hdf5Reader {
 public:
  /// Throws Error(code) if it is no HDF5 file or holds what framework/storage/hdf5_header.h does not list; remedy: what
  /// to do then.
  static Hdf5Reader open(const std::string& path, ExitCode code, const std::string& remedy = "");
  /// The same of a file that is open already.
  static Hdf5Reader open(File file, ExitCode code, const std::string& remedy = "");
  const File& file() const { return file_; }
  const std::string& path() const { return file_.path(); }
  const std::vector<Hdf5Dataset>& datasets() const { return datasets_; }  // by name, sorted
  const Hdf5Attributes& attributes() const { return attributes_; }
  /// Returns a dataset; null if there is none of that name.
  const Hdf5Dataset* find(const std::string& name) const;
  /// Returns an attribute's value; Error(code) that names it if it is missing or of another type.
  std::int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  /// Reads elements [begin, begin + count) of a dataset of this file into host memory of its type.
  void read(const Hdf5Dataset& dataset, std::int64_t begin, void* data, std::int64_t count) const;

 private:
  Hdf5Reader() = default;
  const Hdf5Value& attribute(const std::string& name) const;
  File file_;
  ExitCode code_ = ExitCode::internal;
  std::vector<Hdf5Dataset> datasets_;
  Hdf5Attributes attributes_;
};

}  // namespace ringtrain
