// Tensors in files of other programs: their element types, and any slice of them as float32 or float64. safetensors.h
// says where the tensors of a file lie.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/storage/files.h"

namespace ringtrain {

enum class StoredType : std::uint8_t { float64, float32, float16, bfloat16, unsupported };

/// Returns the bytes of elements. Requires a supported type.
std::int64_t stored_bytes(StoredType type, std::int64_t elements);

/// Writes `count` numbers to `to`, little-endian in the file; from may have any alignment. Real: float or double. Exact
/// but for float64 as float32, which is rounded to nearest.
template <class Real>
void decode(StoredType type, const char* from, std::int64_t count, Real* to);

/// Writes numbers as float32, float16 or bfloat16 of a file, each rounded once to nearest.
template <class Real>
void encode(StoredType type, const Real* from, std::int64_t count, char* to);

/// Returns the product of a shape, 1 of a scalar.
std::int64_t element_count(const std::vector<std::int64_t>& shape);

/// Where a tensor of a file lies. Shape: outermost dimension first, row-major.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::unsupported;
  std::string type_name;  // the file's own, for messages
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // bytes, from the file's start
  std::int64_t bytes = 0;
  std::size_t file = 0;  // of StoredTensors::files

  std::int64_t elements() const { return element_count(shape); }
};

/// The tensors of one or more files, by name. A plain value.
struct StoredTensors {
  std::vector<std::string> files;  // paths
  std::vector<FileStamp> stamps;   // of the files, when their headers were read
  std::map<std::string, StoredTensor, std::less<>> tensors;

  const StoredTensor* find(std::string_view name) const;
  /// Adds a file that is open.
  void add_file(const File& file);
  /// Opens one of the files. Throws Error(checkpoint) if it is no more what its header was read of.
  File open(std::size_t file) const;
};

/// Reads slices. One file is open at a time, and at most 2 MiB are in memory. Slices that follow each other in a file
/// come at the disk's rate: the system is asked for the next ones while this one is decoded. Used by one thread.
class StoredTensorReader {
 public:
  /// tensors must outlive it.
  explicit StoredTensorReader(const StoredTensors& tensors) : tensors_(tensors) {}
  /// Reads elements [begin, begin + count) of the flattened tensor. Throws Error(checkpoint) that names file and tensor
  /// if its type is unsupported, the file ends before, or somebody wrote to the file since its header was read.
  template <class Real>
  void read(const StoredTensor& tensor, std::int64_t begin, std::int64_t count, Real* to);

 private:
  /// Reads bytes of the open file into bytes_.
  void read_bytes(std::int64_t offset, std::int64_t bytes);

  const StoredTensors& tensors_;
  File file_;
  std::size_t opened_ = 0;  // which of the files it is
  std::string bytes_;
  std::int64_t end_ = -1, prefetched_ = -1;  // of the file: where the last read ended, and what was asked for beyond
};

/// Returns "[2, 3]".
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace ringtrain
