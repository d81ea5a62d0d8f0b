#include "device/shared_writes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "device/block.h"

namespace cuda_emulator {

void SharedWrites::reset(const void* memory, std::size_t bytes, bool on) {
  on_ = on && bytes > 0;
  if (!on_) return;
  memory_ = static_cast<const char*>(memory);
  known_.resize(bytes / sizeof(Word));
  std::memcpy(known_.data(), memory_, known_.size() * sizeof(Word));
  writers_.assign(known_.size(), fenced);
  of_thread_.assign(Block::max_threads, {});
}

std::size_t SharedWrites::offset_of(const void* address) const {
  return static_cast<std::size_t>(static_cast<const char*>(address) - memory_) / sizeof(Word);
}

void SharedWrites::thread_stops() {
  if (!on_) return;
  constexpr std::size_t page = 256;  // words
  const int thread = block_.thread();
  for (std::size_t begin = 0; begin < known_.size(); begin += page) {
    const std::size_t end = std::min(begin + page, known_.size());
    if (std::memcmp(&known_[begin], memory_ + begin * sizeof(Word), (end - begin) * sizeof(Word)) == 0) continue;
    for (std::size_t i = begin; i < end; ++i) {
      Word now;
      std::memcpy(&now, memory_ + i * sizeof(Word), sizeof(Word));
      if (now == known_[i]) continue;
      known_[i] = now;
      writers_[i] = static_cast<std::int16_t>(thread);
      of_thread_[static_cast<std::size_t>(thread)].push_back(i);
    }
  }
}

void SharedWrites::fence() {
  if (!on_) return;
  thread_stops();
  auto& mine = of_thread_[static_cast<std::size_t>(block_.thread())];
  for (const std::size_t word : mine) {
    if (writers_[word] == block_.thread()) writers_[word] = fenced;
  }
  mine.clear();
}

void SharedWrites::check_read(const char* what, const void* from, std::size_t bytes) {
  if (!on_) return;
  const std::size_t begin = offset_of(from), end = std::min(begin + bytes / sizeof(Word), writers_.size());
  for (std::size_t i = begin; i < end; ++i) {
    if (writers_[i] == fenced) continue;
    block_.fail(
        fmt::format("{} reads byte {:#x} of shared memory, which thread {} wrote; that thread has not called "
                    "fence_proxy_async since",
                    what, i * sizeof(Word), writers_[i]));
  }
}

void SharedWrites::after_copy(const void* to, std::size_t bytes) {
  if (!on_) return;
  const std::size_t begin = offset_of(to), words = bytes / sizeof(Word);
  std::memcpy(&known_[begin], to, words * sizeof(Word));
  std::fill_n(writers_.begin() + static_cast<std::ptrdiff_t>(begin), words, fenced);
}

}  // namespace cuda_emulator
