// Loads every kernel before it is launched. CUDA loads a kernel at its first launch and may then wait for all GPUs of
// the process. It waits forever if one of them runs a kernel of NCCL that waits for the rank that is loading. Some
// kernels are first launched in an arbitrary step, depending on the data (a ring may bring a rank no gradients in its
// first steps). So ranks that are threads load everything before their first operation of NCCL.
#pragma once

namespace ringtrain::cuda {

/// Registers `kernel`, the address of a __global__ function, for load_kernels. Called before main for each kernel that
/// the program can launch (kernels/cuda/launch.cuh). Returns true.
bool note_kernel(const void* kernel);

/// Loads all registered kernels on this thread's GPU. Skips those that have no code for it; they fail when launched.
/// The host may wait for every GPU of the process. Throws Error(device).
void load_kernels();

}  // namespace ringtrain::cuda
