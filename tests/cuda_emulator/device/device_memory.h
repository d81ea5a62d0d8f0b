// Device memory and pinned host memory: ordinary host memory that is recognized by its address. AddressSanitizer
// reports host code that touches the first or the last 32 KiB of device memory, and any code that touches memory beyond
// an allocation.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "driver_types.h"

namespace cuda_emulator {

struct Allocation {
  char* base;
  std::size_t bytes;
  bool pinned;  // host memory; otherwise device memory
  int device;
};

class Memory {
 public:
  /// Returns new memory, with all bits set (NaN), or null if the device does not have that much left. 0 bytes: null.
  void* allocate(int device, std::size_t bytes, bool pinned);
  /// Returns false if allocate did not return `base` for that kind.
  bool release(void* base, bool pinned);
  void release_all();

  /// Returns the allocation that contains the address; null: pageable host memory.
  const Allocation* find(const void* pointer) const;
  /// Returns whether bytes [pointer, pointer + bytes) are in one allocation, or in none.
  bool whole(const void* pointer, std::size_t bytes) const;

  std::size_t used(int device) const;

  /// Device memory is accessible from open() to close().
  void open();
  void close();

 private:
  std::map<const char*, Allocation> allocations_;
  std::vector<std::size_t> used_;
  bool open_ = false;
};

/// Opens the process's device memory; the holder of the runtime's lock closes it before releasing the lock.
void open_device_memory();

}  // namespace cuda_emulator
