#include "train/models/json_keys.h"

#include <optional>
#include <utility>

#include "framework/config/config_problems.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

std::string shown(const nlohmann::json& value) {
  return excerpt(value.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace));
}

nlohmann::json parse_object(const std::string& text, const std::string& path) {
  nlohmann::json json;
  try {
    json = parse_strict_json(text);
  } catch (const std::exception& error) {
    fail(ExitCode::checkpoint, "{}: is no JSON: {}", path, error.what());
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

void JsonKeys::refuse_type(const std::string& key, const char* wanted) const {
  refuse(key, fmt::format("is {}, but must be {}", shown(object_.at(key)), wanted));
}

std::int64_t JsonKeys::integer(const std::string& key, std::int64_t other) {
  const nlohmann::json* const value = find(key);
  if (value == nullptr) return other;
  const std::optional<std::int64_t> number = whole_number(*value);
  if (!number) refuse_type(key, "a whole number");
  return *number;
}

double JsonKeys::real(const std::string& key, double other) {
  const nlohmann::json* const value = find(key);
  if (value == nullptr) return other;
  if (!value->is_number()) refuse_type(key, "a number");
  return value->get<double>();
}

bool JsonKeys::flag(const std::string& key, bool other) {
  const nlohmann::json* const value = find(key);
  if (value == nullptr) return other;
  if (!value->is_boolean()) refuse_type(key, "true or false");
  return value->get<bool>();
}

std::string JsonKeys::text(const std::string& key, const std::string& other) {
  const nlohmann::json* const value = find(key);
  if (value == nullptr) return other;
  if (!value->is_string()) refuse_type(key, "text");
  return value->get<std::string>();
}

std::vector<double> JsonKeys::reals(const std::string& key) {
  const nlohmann::json* const value = find(key);
  std::vector<double> numbers;
  if (value == nullptr) return numbers;
  if (!value->is_array()) refuse_type(key, "a list of numbers");
  for (const nlohmann::json& item : *value) {
    if (!item.is_number()) refuse_type(key, "a list of numbers");
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

std::vector<std::string> JsonKeys::texts(const std::string& key) {
  const nlohmann::json* const value = find(key);
  std::vector<std::string> list;
  if (value == nullptr) return list;
  if (!value->is_array()) refuse_type(key, "a list of names");
  for (const nlohmann::json& item : *value) {
    if (!item.is_string()) refuse_type(key, "a list of names");
    list.push_back(item.get<std::string>());
  }
  return list;
}

std::vector<std::string> JsonKeys::unasked() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items()) {
    if (!asked_.contains(key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace ringtrain
