// The functions of the CUDA driver that programs request by name.
#pragma once

namespace cuda_emulator {

/// Returns the driver function of this name; null if the emulator has none.
void* driver_function(const char* name);

}  // namespace cuda_emulator
