// Device and pinned memory.
#include "device/device_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "api/runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#endif

namespace cuda_emulator {

namespace {

// Device memory is opened and closed around every piece of work. Only its ends are closed, because closing hundreds of
// megabytes of tensors would take longer than any kernel here.
constexpr std::size_t closed_end = std::size_t{32} << 10;

void close_ends([[maybe_unused]] const Allocation& allocation) {
  const std::size_t end = std::min(allocation.bytes, closed_end);
  ASAN_POISON_MEMORY_REGION(allocation.base, end);
  ASAN_POISON_MEMORY_REGION(allocation.base + allocation.bytes - end, end);
}

void open_ends([[maybe_unused]] const Allocation& allocation) {
  const std::size_t end = std::min(allocation.bytes, closed_end);
  ASAN_UNPOISON_MEMORY_REGION(allocation.base, end);
  ASAN_UNPOISON_MEMORY_REGION(allocation.base + allocation.bytes - end, end);
}

}  // namespace

void* Memory::allocate(int device, std::size_t bytes, bool pinned) {
  const auto at = static_cast<std::size_t>(device);
  if (used_.size() <= at) used_.resize(at + 1);
  if (!pinned && bytes > runtime().devices.memory_bytes - used_[at]) return nullptr;
  void* memory = nullptr;
  // Of exactly the requested size, so that AddressSanitizer detects accesses beyond it.
  if (posix_memalign(&memory, 256, bytes) != 0) return nullptr;
  std::memset(memory, 0xff, bytes);
  auto* base = static_cast<char*>(memory);
  const Allocation& allocation = allocations_[base] = {base, bytes, pinned, device};
  if (!pinned) {
    used_[at] += bytes;
    if (!open_) close_ends(allocation);
  }
  return memory;
}

bool Memory::release(void* base, bool pinned) {
  const auto found = allocations_.find(static_cast<const char*>(base));
  if (found == allocations_.end() || found->second.pinned != pinned) return false;
  const Allocation& allocation = found->second;
  if (!pinned) {
    used_[static_cast<std::size_t>(allocation.device)] -= allocation.bytes;
    open_ends(allocation);
  }
  std::free(allocation.base);
  allocations_.erase(found);
  return true;
}

void Memory::release_all() {
  open();
  for (const auto& [base, allocation] : allocations_) std::free(allocation.base);
  *this = Memory{};
}

const Allocation* Memory::find(const void* pointer) const {
  const auto* address = static_cast<const char*>(pointer);
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return nullptr;
  const Allocation& allocation = (--next)->second;
  return address < allocation.base + allocation.bytes ? &allocation : nullptr;
}

bool Memory::whole(const void* pointer, std::size_t bytes) const {
  const auto* address = static_cast<const char*>(pointer);
  if (const Allocation* allocation = find(pointer))
    return bytes <= allocation->bytes - static_cast<std::size_t>(address - allocation->base);
  const auto next = allocations_.upper_bound(address);
  return next == allocations_.end() || address + bytes <= next->first;
}

std::size_t Memory::used(int device) const {
  const auto at = static_cast<std::size_t>(device);
  return at < used_.size() ? used_[at] : 0;
}

void Memory::open() {
  if (open_) return;
  open_ = true;
  for (const auto& [base, allocation] : allocations_) {
    if (!allocation.pinned) open_ends(allocation);
  }
}

void Memory::close() {
  if (!open_) return;
  open_ = false;
  for (const auto& [base, allocation] : allocations_) {
    if (!allocation.pinned) close_ends(allocation);
  }
}

void open_device_memory() {
  runtime().memory.open();
}

}  // namespace cuda_emulator
