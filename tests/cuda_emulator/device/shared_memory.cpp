// Shared memory for device code: the dynamic part, and the window of 32-bit addresses.
//
// The window: dynamic memory begins at 0x400, so all of it has addresses below 2^18, the range of a matrix descriptor.
// Static variables (and anything else) have the top bit set and count from an anchor.
#include <fmt/format.h>

#include <cstdint>

#include "api/settings.h"
#include "cuda_emulator_device.h"
#include "device/block.h"

namespace cuda_emulator {

namespace {

constexpr std::uint32_t dynamic_begin = 0x400, static_flag = 0x80000000u;
constexpr std::int64_t middle = std::int64_t{1} << 30;
alignas(1024) char anchor[1024];

}  // namespace

void* dynamic_shared_memory() {
  return running().shared();
}

std::uint32_t shared_address(const void* shared) {
  Block& block = running();
  const auto address = reinterpret_cast<std::intptr_t>(shared);
  const auto dynamic = reinterpret_cast<std::intptr_t>(block.shared());
  const auto bytes = static_cast<std::intptr_t>(block.launch().shared_bytes);
  if (bytes > 0 && address >= dynamic && address <= dynamic + bytes) {
    return dynamic_begin + static_cast<std::uint32_t>(address - dynamic);
  }
  const std::int64_t offset = address - reinterpret_cast<std::intptr_t>(anchor) + middle;
  if (offset < 0 || offset >= 2 * middle) block.fail(fmt::format("{} is no address of shared memory", shared));
  return static_flag | static_cast<std::uint32_t>(offset);
}

void* shared_pointer(std::uint32_t address) {
  Block& block = running();
  if ((address & static_flag) != 0) return anchor + (static_cast<std::int64_t>(address & ~static_flag) - middle);
  const std::size_t bytes = block.launch().shared_bytes;
  if (address < dynamic_begin || address - dynamic_begin > bytes) {
    block.fail(fmt::format("{:#x} is outside of the {} bytes of dynamic shared memory", address, bytes));
  }
  return static_cast<char*>(block.shared()) + (address - dynamic_begin);
}

int load_acquire(const int* p, Where where) {
  let_others_run(where);
  return *p;
}

void let_others_run(Where where) {
  running().spin({"a loop on load_acquire", where});
}

long long clock_cycles() {
  return running().stalls() * stall_cycles;
}

void stop_kernel() {
  throw StoppedKernel{};
}

void add_release(int* p, int n) {
  if (lost(Signal::release)) return;
  *p += n;
}

}  // namespace cuda_emulator
