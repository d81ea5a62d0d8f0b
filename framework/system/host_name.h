// The names of this machine and its processor, for messages of runs that span several machines.
#pragma once

#include <string>

namespace ringtrain {

/// Returns the machine's name; empty if the system does not report it.
std::string host_name();
/// Returns the name of its processor, such as "AMD EPYC 9B14"; empty if the system does not report it.
std::string processor_name();

}  // namespace ringtrain
