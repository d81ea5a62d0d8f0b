// What this machine is called, for messages of runs that span several.
#pragma once

#include <string>

namespace ringtrain {

/// Returns it; empty if the system does not say.
std::string host_name();

}  // namespace ringtrain
