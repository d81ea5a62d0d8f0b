// The table of all config keys: for each its path, its default, type, range, and what it is for. Reading a file, --set,
// to_yaml and differences() all walk this one table.
#pragma once

#include <string_view>
#include <vector>

#include "framework/config/config_values.h"

namespace ringtrain {

/// Returns all keys, section by section, in the order they are written.
const std::vector<ConfigKey>& config_keys();
/// Returns the key of this path; null if there is none.
const ConfigKey* find_key(std::string_view path);

}  // namespace ringtrain
