#include "framework/storage/strict_json.h"

#include <set>
#include <vector>

namespace ringtrain {

namespace {

using Json = nlohmann::json;

/// Reads a text without making values of it, and throws for what is refused. The library's parser calls back, too, but
/// then goes over a whole list after each of its objects: a list of 100,000 took seconds.
class Checker final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return check_depth(); }
  bool boolean(bool) override { return check_depth(); }
  bool number_integer(number_integer_t) override { return check_depth(); }
  bool number_unsigned(number_unsigned_t) override { return check_depth(); }
  bool number_float(number_float_t, const string_t&) override { return check_depth(); }
  bool string(string_t&) override { return check_depth(); }
  bool binary(binary_t&) override { return check_depth(); }
  bool start_object(std::size_t) override {
    check_depth();
    ++depth_;
    names_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    check_depth();
    if (!names_.back().insert(name).second) throw std::runtime_error(name + " stands there twice");
    return true;
  }
  bool end_object() override {
    --depth_;
    names_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override {
    check_depth();
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;  // parsing will say it
  }

 private:
  static constexpr int deepest = 8;

  bool check_depth() const {
    if (depth_ > deepest) throw std::runtime_error("nested deeper than " + std::to_string(deepest) + " levels");
    return true;
  }

  int depth_ = 0;
  std::vector<std::set<std::string>> names_;  // of each object that is being read
};

}  // namespace

Json parse_strict_json(const std::string& text) {
  if (text.find('\0') != std::string::npos) throw std::runtime_error("it holds a byte of 0");
  Checker checker;
  Json::sax_parse(text, &checker);  // before there are values: what writes or frees a tree may recurse
  return Json::parse(text);
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
