// GGUF files (github.com/ggml-org/ggml/docs/gguf.md), versions 2 and 3, little-endian: metadata by key, and tensors,
// plain or quantized. The reader trusts nothing that it reads: every length is held against the file's size first, and
// no count makes it hold more than a few times the file's own header.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "extras/gguf/gguf_tensor.h"
#include "framework/error.h"
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

  /// Returns the value of a key, null if it is absent. T: one of GgufValue's. Throws Error(checkpoint) if it has
  /// another type.
  template <class T>
  const T* find(std::string_view key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) return nullptr;
    if (const T* const value = std::get_if<T>(&found->second)) return value;
    refuse("key {} is not {}", key, wanted(GgufValue(T())));
  }
  /// The same, or `other` if it is absent.
  template <class T>
  T get(std::string_view key, T other) const {
    const T* const value = find<T>(key);
    return value != nullptr ? *value : other;
  }
  /// Throws Error(checkpoint) that begins with the path.
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ExitCode::checkpoint, "{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  static std::string_view wanted(const GgufValue& value);

  std::string path_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
  FileStamp stamp_;
};

}  // namespace ringtrain
