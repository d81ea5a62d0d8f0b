// Direct access of one GPU to the memory of another in the same process, over NVLink or PCIe. With it, copy engines
// transfer what ranks that are threads exchange; without it, the driver copies through host memory.
#pragma once

#include <cstdint>
#include <span>

namespace ringtrain::cuda {

/// Returns whether each of this machine's GPUs below `devices` can reach the memory of every other one.
bool every_pair_has_access(int devices);

/// Gives `device` access to the memory of each of the others, where the machine allows it; its own number among them
/// has no effect. Returns whether it can access all. Makes `device` the calling thread's GPU. Throws Error(device) that
/// names it.
bool enable_peer_access(int device, std::span<const std::int64_t> others);

}  // namespace ringtrain::cuda
