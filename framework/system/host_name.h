// What this machine is called, for messages of runs that span several, and what computes in it.
#pragma once

#include <string>

namespace ringtrain {

/// Returns it; empty if the system does not say.
std::string host_name();
/// Returns the name of its processor, as "AMD EPYC 9B14"; empty if the system does not say.
std::string processor_name();

}  // namespace ringtrain
