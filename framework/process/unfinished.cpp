#include "framework/process/unfinished.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>

namespace ringtrain {

namespace {

// A handler can only access globals and must not allocate.
struct Slot {
  std::atomic<bool> taken{false}, ready{false};
  std::array<char, PATH_MAX> path{};
};
std::array<Slot, 32> slots;
static_assert(std::atomic<bool>::is_always_lock_free);

/// An entry as the kernel returns it; the name follows, terminated by a zero.
struct Entry {
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t bytes;
  std::uint8_t type;
};
constexpr std::size_t name_offset = offsetof(Entry, type) + 1;

void remove_at(int folder, const char* name, int depth) noexcept;

/// Removes the content of an open folder. Returns whether there was any.
bool empty_folder(int folder, int depth) noexcept {
  alignas(Entry) std::array<char, 4096> buffer{};
  bool found = false;
  ::lseek(folder, 0, SEEK_SET);
  for (;;) {
    const long bytes = ::syscall(SYS_getdents64, folder, buffer.data(), buffer.size());
    if (bytes <= 0) return found;
    for (long at = 0; at < bytes;) {
      Entry entry{};
      std::memcpy(&entry, buffer.data() + at, name_offset);
      const char* const name = buffer.data() + at + name_offset;
      at += entry.bytes;
      if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
      found = true;
      remove_at(folder, name, depth);
    }
  }
}

void remove_at(int folder, const char* name, int depth) noexcept {
  constexpr int deepest = 4, tries = 8;  // another thread may be adding a file
  if (::unlinkat(folder, name, 0) == 0 || errno == ENOENT || depth == deepest) return;
  const int inside = ::openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (inside < 0) return;
  for (int i = 0; i < tries; ++i) {
    empty_folder(inside, depth + 1);
    if (::unlinkat(folder, name, AT_REMOVEDIR) == 0) break;
  }
  ::close(inside);
}

}  // namespace

Unfinished::Unfinished(const std::string& path) noexcept {
  if (path.size() >= PATH_MAX) return;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].taken.exchange(true)) continue;
    std::copy_n(path.c_str(), path.size() + 1, slots[i].path.begin());
    slots[i].ready = true;
    slot_ = static_cast<int>(i);
    return;
  }
}

Unfinished::~Unfinished() {
  if (slot_ < 0) return;
  Slot& slot = slots[slot_];
  slot.ready = false;
  slot.taken = false;
}

void remove_unfinished() noexcept {
  const int error = errno;
  for (const Slot& slot : slots) {
    if (slot.ready) remove_at(AT_FDCWD, slot.path.data(), 0);
  }
  errno = error;
}

}  // namespace ringtrain
