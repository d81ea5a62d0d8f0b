#include "train/models/json_keys.h"

#include "framework/config/config_problems.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

/// Returns a value of a type, or nothing.
template <class T>
std::optional<T> value_of(const nlohmann::json& from) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return whole_number(from);
  } else {
    const bool fits = std::is_same_v<T, bool>     ? from.is_boolean()
                      : std::is_same_v<T, double> ? from.is_number()
                                                  : from.is_string();
    return fits ? std::optional(from.get<T>()) : std::nullopt;
  }
}

/// Returns the values of a list, or nothing.
template <class T>
std::optional<std::vector<T>> list_of(const nlohmann::json& from) {
  std::vector<T> list;
  if (!from.is_array()) return std::nullopt;
  for (const nlohmann::json& item : from) {
    std::optional<T> value = value_of<T>(item);
    if (!value) return std::nullopt;
    list.push_back(*std::move(value));
  }
  return list;
}

}  // namespace

std::string shown(const nlohmann::json& value) {
  return excerpt(json_text(value));
}

nlohmann::json parse_object(const std::string& text, const std::string& path) {
  nlohmann::json json;
  try {
    json = parse_strict_json(text);
  } catch (const std::exception& error) {
    fail(ExitCode::checkpoint, "{}: is not JSON: {}", path, error.what());
  }
  if (!json.is_object()) fail(ExitCode::checkpoint, "{}: is {}, but must be an object", path, shown(json));
  return json;
}

bool asks_for_nothing(const nlohmann::json& value) {
  const bool no_text = value.is_string() && value.get_ref<const std::string&>().empty();
  return value.is_null() || value == false || no_text || (value.is_structured() && value.empty());
}

JsonKeys::JsonKeys(const nlohmann::json& object, std::string path, std::string prefix)
    : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {
  ensure(object.is_object(), "keys are those of an object");
}

const nlohmann::json* JsonKeys::find(const std::string& key) {
  asked_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

bool JsonKeys::names(const std::string& key) {
  return find(key) != nullptr;
}

bool JsonKeys::has(const std::string& key) {
  const nlohmann::json* const value = find(key);
  return value != nullptr && !value->is_null();
}

const nlohmann::json& JsonKeys::at(const std::string& key) {
  const nlohmann::json* const value = find(key);
  ensure(value != nullptr, "the key was looked for before");
  return *value;
}

void JsonKeys::refuse(const std::string& key, const std::string& what) const {
  fail(ExitCode::checkpoint, "{}: {}{}: {}", path_, prefix_, excerpt(key), what);
}

template <class T>
T JsonKeys::value(const std::string& key, T other, const char* wanted,
                  std::optional<T> (*take)(const nlohmann::json&)) {
  const nlohmann::json* const found = find(key);
  if (found == nullptr) return other;
  std::optional<T> taken = take(*found);
  if (!taken) refuse(key, "is {}, but must be {}", shown(*found), wanted);
  return *std::move(taken);
}

std::int64_t JsonKeys::integer(const std::string& key, std::int64_t other) {
  return value(key, other, "a whole number", value_of<std::int64_t>);
}

double JsonKeys::real(const std::string& key, double other) {
  return value(key, other, "a number", value_of<double>);
}

bool JsonKeys::flag(const std::string& key, bool other) {
  return value(key, other, "true or false", value_of<bool>);
}

std::string JsonKeys::text(const std::string& key, const std::string& other) {
  return value(key, other, "text", value_of<std::string>);
}

std::vector<double> JsonKeys::reals(const std::string& key) {
  return value({key}, {}, "a list of numbers", list_of<double>);
}

std::vector<std::string> JsonKeys::texts(const std::string& key) {
  return value({key}, {}, "a list of names", list_of<std::string>);
}

std::vector<std::string> JsonKeys::unasked() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items()) {
    if (!asked_.contains(key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace ringtrain
