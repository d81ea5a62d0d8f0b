#include "framework/cuda/peer_access.h"

#include "framework/cuda/current_device.h"

namespace ringtrain::cuda {

namespace {

bool can_access(int device, int other) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, device, other), "asking for access to another GPU", device);
  return can != 0;
}

/// Gives `device`, the thread's own, access to the memory of another device. Returns whether it has access.
bool reach(int device, int other) {
  if (!can_access(device, other)) return false;
  const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
  if (status == cudaSuccess) return true;
  ignore(cudaGetLastError());                                    // otherwise the next launch would report it again
  if (status == cudaErrorTooManyPeers) return false;             // more than the machine connects directly
  if (status == cudaErrorPeerAccessAlreadyEnabled) return true;  // by another rank of the same GPU
  check(status, "allowing access to another GPU", device);
  return false;
}

}  // namespace

bool every_pair_has_access(int devices) {
  for (int device = 0; device < devices; ++device) {
    for (int other = 0; other < devices; ++other) {
      if (other != device && !can_access(device, other)) return false;
    }
  }
  return true;
}

bool enable_peer_access(int device, std::span<const std::int64_t> others) {
  use_device(device);
  bool all = true;
  for (const std::int64_t number : others) {
    const int other = static_cast<int>(number);
    if (other != device && !reach(device, other)) all = false;
  }
  return all;
}

}  // namespace ringtrain::cuda
