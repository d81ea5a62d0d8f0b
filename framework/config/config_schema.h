// The table of all config keys: for each its path, its default, type, range, and what it is for. Reading a file, --set,
// to_yaml and differences() all walk this one table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/config/config.h"
#include "framework/config/config_values.h"

namespace ringtrain {

struct ConfigKey {
  std::string path;  // "model.rope_scaling.type"
  std::string doc;   // one line
  bool required = false;
  /// Stores a value of the right type and range, else complains.
  std::function<void(Config&, const YamlValue&, const Complain&)> read;
  /// Returns the value as YAML on one line.
  std::function<std::string(const Config&)> write;
  std::string values = "";  // which values it takes: "1 to 1024", "a | b", "true | false"
  bool is_source = false;   // names where the values of other keys come from, and has none in a Config itself
};

/// Returns all keys, section by section, in the order they are written.
const std::vector<ConfigKey>& config_keys();

}  // namespace ringtrain
