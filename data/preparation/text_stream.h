// Reads the bytes of a text file, and decompresses them if its name ends in .gz or .zst. The bytes of the file itself
// are hashed, which detects changes since it was found. Memory does not grow with the file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ringtrain {

/// Returns the name without the extension of its compression: .gz or .zst.
std::string_view without_compression(std::string_view path);

/// Used by one thread.
class TextStream {
 public:
  /// Throws Error(data) if the file cannot be opened.
  static std::unique_ptr<TextStream> open(const std::string& path);
  virtual ~TextStream() = default;
  /// Reads up to `bytes` bytes of text. Returns how many; 0 at the end. Throws Error(data) that names the file if it is
  /// damaged, truncated, or cannot be read.
  virtual std::size_t read(char* data, std::size_t bytes) = 0;
  /// Returns the bytes of the file that have been read so far.
  virtual std::int64_t file_bytes_read() const = 0;
  /// Returns the hash of those bytes, which at the end is the file's hash.
  virtual std::string hash() const = 0;
};

}  // namespace ringtrain
