// XXH3-128 of memory and of files, as 32 hexadecimal digits: what manifests hold and resumes compare. It finds damage;
// it is no defence against someone who forges both file and manifest.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "framework/error.h"

namespace ringtrain {

/// A hash that takes its bytes in pieces; the pieces' borders do not matter.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void update(const void* data, std::size_t bytes);
  /// Return the hash of all bytes so far.
  std::string digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_bytes(std::string_view bytes);
/// Return the hash of a file's content, read in slices of 1 MiB.
std::string hash_file(const std::string& path, ExitCode code);

}  // namespace ringtrain
