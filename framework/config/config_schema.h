// The table of all config keys: for each its path, its default, type, range, and what it is for. Reading a file, --set,
// to_yaml and differences() all walk this one table.
#pragma once

#include <vector>

#include "framework/config/config_values.h"

namespace ringtrain {

/// Returns all keys, section by section, in the order they are written.
const std::vector<ConfigKey>& config_keys();

}  // namespace ringtrain
