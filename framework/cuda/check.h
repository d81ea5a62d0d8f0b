// Turns the return codes of the CUDA runtime into the project's only error type, Error, with exit code `device`.
#pragma once

#include <cuda_runtime.h>

#include "framework/error.h"

namespace ringtrain::cuda {

/// Throws Error(device) unless status is success. what: what was tried, such as "copying 64 bytes to the device". The
/// message names the machine and the GPU: `device`, or that of the calling thread.
void check(cudaError_t status, const char* what, int device = -1);

/// The same without a throw, for destructors: an earlier call has reported the error, or the process ends anyway.
inline void ignore(cudaError_t) noexcept {}

}  // namespace ringtrain::cuda
