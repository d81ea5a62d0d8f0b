#include "framework/config/model_keys.h"

#include <algorithm>

namespace ringtrain {

bool is_or_below(std::string_view key, std::string_view section) {
  return key == section || (key.starts_with(section) && key[section.size()] == '.');
}

bool is_free_with_weights(std::string_view key) {
  return std::ranges::any_of(free_with_weights, [&](std::string_view section) { return is_or_below(key, section); });
}

}  // namespace ringtrain
