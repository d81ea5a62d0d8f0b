// Memory of a GPU, and host memory that it can access directly (pinned). Used by the Allocator.
#pragma once

#include <cstddef>

namespace ringtrain::cuda {

/// Returns memory of GPU `device`, or null if it does not have that much left. Throws Error(device) for any other
/// reason.
void* allocate(int device, std::size_t bytes);
void release(int device, void* data);

/// Returns pinned host memory, aligned to a page, or null if the machine does not have that much left.
void* allocate_pinned(std::size_t bytes);
void release_pinned(void* data);

/// Returns the free bytes of GPU `device`.
std::size_t free_bytes(int device);

}  // namespace ringtrain::cuda
