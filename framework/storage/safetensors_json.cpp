#include "framework/storage/safetensors_json.h"

#include <stdexcept>

#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

using nlohmann::json;

constexpr const char* metadata_key = "__metadata__";
constexpr std::size_t deepest = 16;  // in members that the format does not define

void require_object(const json& value, const std::string& name) {
  if (!value.is_object()) throw std::runtime_error(name + " is of type " + value.type_name() + " instead of an object");
}

const json& member(const json& entry, const std::string& name, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end()) throw std::runtime_error(name + " has no " + key);
  return *found;
}

std::vector<std::uint64_t> counts(const json& entry, const std::string& name, const char* key) {
  std::vector<std::uint64_t> values;
  const json& list = member(entry, name, key);
  if (!list.is_array()) throw std::runtime_error(name + " has " + key + " of type " + list.type_name());
  for (const json& value : list) {
    if (!value.is_number_unsigned()) throw std::runtime_error(name + " has a value that is not a count in its " + key);
    values.push_back(value.get<std::uint64_t>());
  }
  return values;
}

SafetensorsEntry entry_from(const std::string& name, const json& value) {
  require_object(value, name);
  const json& dtype = member(value, name, "dtype");
  if (!dtype.is_string()) throw std::runtime_error(name + " has dtype of type " + dtype.type_name());
  const std::vector<std::uint64_t> offsets = counts(value, name, "data_offsets");
  if (offsets.size() != 2) throw std::runtime_error(name + " needs two data_offsets");
  return {.name = name,
          .dtype = dtype.get<std::string>(),
          .shape = counts(value, name, "shape"),
          .begin = offsets[0],
          .end = offsets[1]};
}

}  // namespace

std::vector<SafetensorsEntry> parse_safetensors_json(std::string_view header) {
  const std::size_t first = header.find_first_not_of(" \t\r\n");  // the parser would skip a byte order mark
  if (first == std::string_view::npos || header[first] != '{') throw std::runtime_error("it does not begin with {");
  std::vector<SafetensorsEntry> entries;
  const json tensors = parse_strict_json(header, {.bytes = header.size(), .depth = 2 + deepest});
  for (const auto& [name, value] : tensors.items()) {
    if (name != metadata_key) {
      entries.push_back(entry_from(name, value));
      continue;
    }
    require_object(value, name);
    for (const json& text : value) {
      if (!text.is_string()) throw std::runtime_error(name + " holds " + text.type_name() + " values instead of text");
    }
  }
  return entries;
}

}  // namespace ringtrain
