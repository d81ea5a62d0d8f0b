#include "framework/storage/strict_json.h"

#include <set>
#include <vector>

namespace ringtrain {

namespace {
constexpr int deepest = 8;
}

nlohmann::json parse_strict_json(const std::string& text) {
  using Event = nlohmann::json::parse_event_t;
  if (text.find('\0') != std::string::npos) throw std::runtime_error("it holds a byte of 0");
  std::vector<std::set<std::string>> names;  // of each object that is being read
  // Refused while it is read: what writes or frees a tree may recurse.
  return nlohmann::json::parse(text, [&](int depth, Event event, nlohmann::json& value) {
    if (depth > deepest) throw std::runtime_error("nested deeper than " + std::to_string(deepest) + " levels");
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event == Event::key && !names.back().insert(value.get<std::string>()).second) {
      throw std::runtime_error(value.get<std::string>() + " stands there twice");
    }
    return true;
  });
}

std::optional<std::int64_t> whole_number(const nlohmann::json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  return value.get<std::int64_t>();
}

StrictObject::StrictObject(const nlohmann::json& json, std::size_t members) : json_(json) {
  if (!json.is_object() || json.size() != members) throw std::runtime_error("an object lacks members or has others");
}

const nlohmann::json& StrictObject::member(const char* name) const {
  const auto found = json_.find(name);
  if (found == json_.end()) throw std::runtime_error(std::string(name) + " is missing");
  return *found;
}

std::int64_t StrictObject::integer(const char* name) const {
  const std::optional<std::int64_t> value = whole_number(member(name));
  if (!value || *value < 0) throw std::runtime_error(std::string(name) + " is no count");
  return *value;
}

std::string StrictObject::text(const char* name) const {
  const nlohmann::json& value = member(name);
  if (!value.is_string()) throw std::runtime_error(std::string(name) + " is no text");
  return value.get<std::string>();
}

std::string StrictObject::hash(const char* name) const {
  std::string value = text(name);
  if (value.size() != 32 || value.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw std::runtime_error(std::string(name) + " is no hash");
  }
  return value;
}

const nlohmann::json& StrictObject::list(const char* name) const {
  const nlohmann::json& value = member(name);
  if (!value.is_array()) throw std::runtime_error(std::string(name) + " is no list");
  return value;
}

}  // namespace ringtrain
