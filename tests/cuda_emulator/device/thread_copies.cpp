// cp.async: issued pieces are outstanding until their thread waits for their group.
#include "device/thread_copies.h"

#include <fmt/format.h>

#include <cstring>

#include "api/settings.h"
#include "device/block.h"

namespace cuda_emulator {

void ThreadCopies::reset() {
  pieces_.clear();
  ends_.clear();
}

void ThreadCopies::issue(void* to, const void* from, bool valid) {
  pieces_.push_back({to, valid ? from : nullptr});
  if (settings().copies == CopyLanding::early) {
    land(pieces_.size());
    pieces_.clear();
  }
}

void ThreadCopies::commit() {
  ends_.push_back(pieces_.size());
}

void ThreadCopies::wait(int groups) {
  if (ends_.size() <= static_cast<std::size_t>(groups)) return;
  const std::size_t landing = ends_.size() - static_cast<std::size_t>(groups);
  const std::size_t pieces = ends_[landing - 1];
  land(pieces);
  pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(pieces));
  ends_.erase(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(landing));
  for (std::size_t& end : ends_) end -= pieces;
}

void ThreadCopies::land(std::size_t pieces) {
  for (std::size_t i = 0; i < pieces; ++i) {
    if (pieces_[i].from != nullptr) {
      std::memcpy(pieces_[i].to, pieces_[i].from, 16);
    } else {
      std::memset(pieces_[i].to, 0, 16);
    }
  }
}

void cp_async_16(void* shared, const void* global, bool valid) {
  Block& block = running();
  if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
      (valid && reinterpret_cast<std::uintptr_t>(global) % 16 != 0)) {
    block.fail(fmt::format("cp_async_16 from {} to {}: both must be aligned to 16 bytes", global, shared));
  }
  block.copies().issue(shared, global, valid);
}

void cp_async_commit() {
  running().copies().commit();
}
void cp_async_wait_groups(int groups) {
  running().copies().wait(groups);
}

}  // namespace cuda_emulator
