#include "framework/storage/hash.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns about its own AVX-512 intrinsics
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace ringtrain {

namespace {
thread_local const HashObserver* listener = nullptr;

std::string hexadecimal(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}
}  // namespace

struct Hasher::State {
  XXH3_state_t xxh;  // aligned to 64 bytes by its declaration
};

Hasher::Hasher() : state_(std::make_shared<State>()) {
  XXH3_128bits_reset(&state_->xxh);
}

void Hasher::update(const void* data, std::size_t bytes) {
  XXH3_128bits_update(&state_->xxh, data, bytes);
}

std::string Hasher::digest() const {
  return hexadecimal(XXH3_128bits_digest(&state_->xxh));
}

std::string hash_bytes(std::string_view bytes) {
  return hexadecimal(XXH3_128bits(bytes.data(), bytes.size()));
}

std::uint64_t hash_block(const void* data, std::size_t bytes) {
  return XXH3_64bits(data, bytes);
}

HashListener::HashListener(HashObserver observer)
    : observer_(std::move(observer)), before_(std::exchange(listener, &observer_)) {}

HashListener::~HashListener() {
  listener = before_;
}

std::string hash_file(const std::string& path, ExitCode code) {
  return hash_file(File::open(path, code), nullptr);
}

std::string hash_file(const File& file, const SliceRead& slice_read) {
  const std::int64_t size = file.size();
  std::vector<char> slice(std::clamp<std::int64_t>(size, 1, 1 << 20));
  Hasher hasher;
  if (listener) (*listener)(file.path(), 0, size);
  for (std::int64_t begin = 0; begin < size;) {
    const std::size_t bytes = static_cast<std::size_t>(std::min<std::int64_t>(size - begin, 1 << 20));
    file.read_at(begin, slice.data(), bytes);
    hasher.update(slice.data(), bytes);
    if (slice_read) slice_read(slice.data(), bytes);
    begin += static_cast<std::int64_t>(bytes);
    if (listener) (*listener)(file.path(), begin, size);
  }
  return hasher.digest();
}

}  // namespace ringtrain
