// XXH3-128 of memory and files, as 32 hexadecimal digits, which manifests store and resumes compare. It detects damage,
// but not a forgery of both the file and its manifest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "framework/error.h"
#include "framework/storage/files.h"

namespace ringtrain {

/// A hash that takes its bytes in pieces; the sizes of the pieces do not matter.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept = default;
  Hasher& operator=(Hasher&&) noexcept = default;
  void update(const void* data, std::size_t bytes);
  /// Returns the hash of all bytes so far.
  std::string digest() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // owned only by this object
};

std::string hash_bytes(std::string_view bytes);
/// Returns the XXH3-64 of a block of memory.
std::uint64_t hash_block(const void* data, std::size_t bytes);
/// Called by hash_file(), once before the first slice and once after each slice, with the bytes that are done and all
/// bytes.
using HashObserver = std::function<void(const std::string& path, std::int64_t done, std::int64_t bytes)>;
/// While this object lives, hash_file() reports its progress in the thread that made the object. Other threads report
/// nothing.
class HashListener {
 public:
  explicit HashListener(HashObserver observer);
  ~HashListener();
  HashListener(const HashListener&) = delete;
  HashListener& operator=(const HashListener&) = delete;

 private:
  HashObserver observer_;
  const HashObserver* before_;
};

/// Returns the hash of a file's content, read in slices of 1 MiB.
std::string hash_file(const std::string& path, ExitCode code);
/// Receives a slice of a file that is being hashed: 1 MiB, or less at the file's end.
using SliceRead = std::function<void(const char* data, std::size_t bytes)>;
/// The same for an open file; slice_read (may be null) receives every slice, in order.
std::string hash_file(const File& file, const SliceRead& slice_read);

}  // namespace ringtrain
