// Writes safetensors files with the same bytes as the reference (safetensors/src/tensor.rs, prepare()): tensors by
// element type, widest first, then by name; compact JSON, padded with spaces to a multiple of 8 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/storage/stored_tensor.h"

namespace ringtrain {

class SafetensorsWriter {
 public:
  /// Creates the file, which must not exist, reserves its bytes on the disk, and writes the header. tensors: name, type
  /// (float32, float16, or bfloat16), and shape of each. Throws Error(checkpoint).
  SafetensorsWriter(const std::string& path, std::vector<StoredTensor> tensors);

  /// Returns the tensors in the order in which their bytes must be appended.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Writes the next bytes of the data.
  void append(const void* data, std::size_t bytes);
  /// Brings the file to the disk, after all bytes have been appended.
  void finish();

 private:
  std::vector<StoredTensor> tensors_;
  File file_;
  std::int64_t written_ = 0, end_ = 0;  // bytes, from the file's start
};

/// Returns the format's name of a type that can be written: F32, F16, or BF16.
const char* safetensors_name(StoredType type);

}  // namespace ringtrain
