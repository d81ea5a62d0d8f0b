// GGUF files (github.com/ggml-org/ggml/docs/gguf.md), versions 2 and 3, little-endian: metadata by key, and tensors,
// plain or quantized. The reader trusts nothing that it reads: every length is held against the file's size first, and
// no count makes it hold more than a few times the file's own header.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "extras/gguf/gguf_tensor.h"
#include "framework/storage/files.h"

namespace ringtrain {

/// A metadata value: a whole number, a real number, a truth value, text, or a list of numbers or texts.
using GgufValue = std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>, std::vector<double>,
                               std::vector<std::string>>;

class GgufFile {
 public:
  /// Reads the header of a file. Throws Error(checkpoint) that names the file, and the key or tensor at fault.
  static GgufFile open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }
  /// Opens the file once more. Throws Error(checkpoint) if it is no more what its header was read of.
  File reopen() const;
  /// Throws Error(checkpoint) unless a file that reopen() returned is still what its header was read of.
  void require_unchanged(const File& opened) const;

  // Each returns the value of a key, nothing if it is absent. Throws Error(checkpoint) if it has another type.
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> real(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  const std::vector<std::string>* texts(std::string_view key) const;
  const std::vector<std::int64_t>* integers(std::string_view key) const;
  const std::vector<double>* reals(std::string_view key) const;
  std::optional<bool> truth(std::string_view key) const;

 private:
  template <class T>
  const T* value(std::string_view key, const char* wanted) const;

  std::string path_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
  FileStamp stamp_;
};

}  // namespace ringtrain
