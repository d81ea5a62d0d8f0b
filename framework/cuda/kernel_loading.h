// Loading every kernel before it is launched. CUDA loads a kernel at its first launch, and may wait there for all GPUs
// of the process: for ever, where one of them runs a kernel of NCCL's that waits for the very rank that loads. What the
// data alone decides (a ring that brings a rank no gradients in its first steps) may be launched for the first time in
// any step; so ranks that are threads load everything before they join.
#pragma once

namespace ringtrain::cuda {

/// Notes `kernel`, the address of a __global__ function, for load_kernels. Called before main for each kernel that the
/// program has a launch of (kernels/cuda/launch.cuh). Returns true.
bool note_kernel(const void* kernel);

/// Loads all noted kernels on this thread's GPU; those that it has no code for are left out, and fail at their launch.
/// The host may wait for every GPU of the process. Throws Error(device).
void load_kernels();

}  // namespace ringtrain::cuda
