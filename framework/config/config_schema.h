// The table of all config keys, with the path, default, type, range, and purpose of each. Reading a file, --set,
// to_yaml, and differences() all use this one table.
#pragma once

#include <vector>

#include "framework/config/config_values.h"

namespace ringtrain {

/// Returns all keys, section by section, in the order in which they are written.
const std::vector<ConfigKey>& config_keys();

}  // namespace ringtrain
