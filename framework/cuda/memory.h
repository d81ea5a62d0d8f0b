// Memory of a GPU, and host memory that it can read and write by itself (pinned). Used by the Allocator.
#pragma once

#include <cstddef>

namespace ringtrain::cuda {

/// Returns memory of GPU `device`, or null if it has not so much left. Throws Error(device) for any other reason.
void* allocate(int device, std::size_t bytes);
void release(int device, void* data);

/// Returns pinned host memory, aligned to a page, or null if the machine has not so much left.
void* allocate_pinned(std::size_t bytes);
void release_pinned(void* data);

/// Returns the bytes of GPU `device` that nobody uses now.
std::size_t free_bytes(int device);

}  // namespace ringtrain::cuda
