// The bytes of a text file, decompressed as they are read where its name ends in .gz or .zst. What was read of the file
// itself is hashed, so that a change since it was found shows. Memory does not grow with the file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ringtrain {

/// Returns the name without the ending of its compression: .gz or .zst.
std::string_view without_compression(std::string_view path);

/// Used by one thread.
class TextStream {
 public:
  /// Throws Error(data) if the file cannot be opened.
  static std::unique_ptr<TextStream> open(const std::string& path);
  virtual ~TextStream() = default;
  /// Reads up to `bytes` bytes of text. Returns how many; 0 at the end. Throws Error(data) that names the file if it is
  /// damaged, cut short or cannot be read.
  virtual std::size_t read(char* data, std::size_t bytes) = 0;
  /// Returns the bytes of the file that have been read so far.
  virtual std::int64_t file_bytes_read() const = 0;
  /// Returns the hash of those bytes: the file's, at its end.
  virtual std::string hash() const = 0;
};

}  // namespace ringtrain
