// Tensors in files of other programs: their element types, and any slice of them as float32 or float64. safetensors.h
// finds the tensors of a file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/storage/files.h"

namespace ringtrain {

enum class StoredType : std::uint8_t { float64, float32, float16, bfloat16, unsupported };

/// Returns the bytes of `elements` elements. Requires a supported type.
std::int64_t stored_bytes(StoredType type, std::int64_t elements);

/// Writes `count` numbers to `to`, little-endian in the file; from may have any alignment. Real: float or double.
/// Exact, except that float64 is rounded to nearest for float32.
template <class Real>
void decode(StoredType type, const char* from, std::int64_t count, Real* to);

/// Writes numbers as float32, float16, or bfloat16 of a file, each rounded once to nearest.
template <class Real>
void encode(StoredType type, const Real* from, std::int64_t count, char* to);

/// Returns the product of a shape's dimensions, 1 for a scalar.
std::int64_t element_count(const std::vector<std::int64_t>& shape);

/// The location of a tensor in a file. Shape: outermost dimension first, row-major.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::unsupported;
  std::string type_name;  // as the file spells it, for messages
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // bytes, from the file's start
  std::int64_t bytes = 0;
  std::size_t file = 0;  // index into StoredTensors::files

  std::int64_t elements() const { return element_count(shape); }
};

/// The tensors of one or more files, by name. A plain value.
struct StoredTensors {
  std::vector<std::string> files;  // paths
  std::vector<FileStamp> stamps;   // of the files, when their headers were read
  std::map<std::string, StoredTensor, std::less<>> tensors;

  const StoredTensor* find(std::string_view name) const;
  /// Adds an open file.
  void add_file(const File& file);
  /// Opens one of the files. Throws Error(checkpoint) if it has changed since its header was read.
  File open(std::size_t file) const;
};

/// Reads slices. One file is open at a time, and at most 2 MiB are in memory. Consecutive slices of a file are read at
/// the disk's speed: the system is asked to load the next ones while this one is decoded. Used by one thread.
class StoredTensorReader {
 public:
  /// tensors must outlive it.
  explicit StoredTensorReader(const StoredTensors& tensors) : tensors_(tensors) {}
  /// Reads elements [begin, begin + count) of the flattened tensor. Throws Error(checkpoint) that names the file and
  /// the tensor if its type is unsupported, the file is too short, or the file has been written since its header was
  /// read.
  template <class Real>
  void read(const StoredTensor& tensor, std::int64_t begin, std::int64_t count, Real* to);

 private:
  /// Reads bytes of the open file into bytes_.
  void read_bytes(std::int64_t offset, std::int64_t bytes);

  const StoredTensors& tensors_;
  File file_;
  std::size_t opened_ = 0;  // index of the open file
  std::string bytes_;
  std::int64_t end_ = -1, prefetched_ = -1;  // in the file: the end of the last read, and of the last prefetch
};

/// Returns "[2, 3]".
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace ringtrain
