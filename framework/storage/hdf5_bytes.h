// Bytes of a file that nobody trusts: pieces of it with bounds that are checked at every step, and a budget of work.
// Used by framework/storage/hdf5_header.cpp alone.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "framework/storage/files.h"

namespace ringtrain {

/// What a file has that it must not have; its text ends the sentence "it has ...".
class Hdf5Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void refuse(const std::string& what) {
  throw Hdf5Refusal(what);
}

inline constexpr std::uint64_t undefined_address = UINT64_MAX;

/// A piece of a file in memory, read from its begin on. Copies share the memory.
class Hdf5Bytes {
 public:
  Hdf5Bytes(std::shared_ptr<const std::string> memory, std::string_view bytes)
      : memory_(std::move(memory)), bytes_(bytes) {}
  std::size_t left() const { return bytes_.size(); }
  bool starts_with(std::string_view text) const { return bytes_.starts_with(text); }
  std::string text() const { return std::string(bytes_); }
  void skip(std::uint64_t count) { take(count); }
  /// Returns the next `count` bytes, and goes past them.
  Hdf5Bytes part(std::uint64_t count) { return {memory_, take(count)}; }
  /// Returns the next little-endian number of `width` bytes, at most 8.
  std::uint64_t unsigned_of(std::uint64_t width) {
    const std::string_view digits = take(width);
    std::uint64_t value = 0;
    for (std::size_t i = digits.size(); i > 0; --i) value = value << 8 | static_cast<unsigned char>(digits[i - 1]);
    return value;
  }
  unsigned u8() { return static_cast<unsigned>(unsigned_of(1)); }
  unsigned u16() { return static_cast<unsigned>(unsigned_of(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(unsigned_of(4)); }
  std::uint64_t u64() { return unsigned_of(8); }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size()) refuse("a header that ends in the middle");
    const std::string_view taken = bytes_.substr(0, static_cast<std::size_t>(count));
    bytes_.remove_prefix(count);
    return taken;
  }
  std::shared_ptr<const std::string> memory_;
  std::string_view bytes_;
};

/// The file, and how much of it may still be read.
class Hdf5Source {
 public:
  explicit Hdf5Source(const File& file)
      : file_(&file),
        size_(static_cast<std::uint64_t>(file.size())),
        bytes_left_((std::uint64_t{64} << 20) + 8 * size_) {}
  std::uint64_t size() const { return size_; }
  /// Returns how many bytes stand after base + offset; 0 beyond the end.
  std::uint64_t left(std::uint64_t base, std::uint64_t offset) const {
    if (base > size_ || offset > size_ - base) return 0;
    return size_ - base - offset;
  }
  /// Returns `count` bytes from `address`; refuses what is not all within the file, or beyond the budget.
  Hdf5Bytes read(std::uint64_t address, std::uint64_t count) {
    if (count > left(address, 0)) refuse("a header that points beyond the file's end");
    if (count > max_at_once) refuse("a header larger than any of ours");
    if (count > bytes_left_) refuse("headers that point to each other without end");
    bytes_left_ -= count;
    auto memory = std::make_shared<std::string>(static_cast<std::size_t>(count), '\0');
    file_->read_at(static_cast<std::int64_t>(address), memory->data(), memory->size());
    const std::string_view bytes = *memory;
    return {std::move(memory), bytes};
  }
  /// Counts a message or a name; refuses the millionth.
  void count_name() {
    if (--names_left_ == 0) refuse("more names than any file of ours");
  }

 private:
  static constexpr std::uint64_t max_at_once = std::uint64_t{64} << 20;
  const File* file_;
  std::uint64_t size_, bytes_left_;
  std::int64_t names_left_ = 1'000'000;
};

}  // namespace ringtrain
