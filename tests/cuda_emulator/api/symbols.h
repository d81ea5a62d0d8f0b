// Names of functions of this program, for traces and reports.
#pragma once

#include <string>

namespace cuda_emulator {

/// Returns the demangled name of the function that begins at this address, without its parameters, even if it is not
/// exported; returns its address if the program was stripped.
std::string function_name(const void* function);

}  // namespace cuda_emulator
