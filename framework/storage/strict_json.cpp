#include "framework/storage/strict_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "framework/storage/plain_text.h"
#include "framework/text/utf8.h"

namespace ringtrain {

namespace {

using Json = nlohmann::json;

/// Builds the tree from the parser's events, and throws for anything that is refused. (The library's own builder has no
/// bounds; with a callback it scans a whole list after each of its objects.)
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(std::size_t memory, std::size_t depth) : memory_(memory), depth_(depth) {}
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool binary(binary_t&) override { return false; }  // text never contains any
  bool string(string_t& text) override {
    spend(sizeof(string_t) + text.size());
    return add(std::move(text));
  }
  bool key(string_t& name) override {
    require_depth();
    spend(map_node + name.size());
    const auto [entry, is_new] = open_.back()->get_ref<Json::object_t&>().try_emplace(std::move(name));
    if (!is_new) throw std::runtime_error("the key " + plain_text(entry->first) + " appears twice");
    member_ = &entry->second;
    return true;
  }
  bool start_object(std::size_t) override { return open(Json::object(), sizeof(Json::object_t)); }
  bool start_array(std::size_t) override { return open(Json::array(), sizeof(Json::array_t)); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view text = error.what();  // "[json.exception.parse_error.101] parse error at line ..."
    throw std::runtime_error(plain_text(text.substr(std::min(text.find("] ") + 2, text.size()))));
  }

 private:
  static constexpr std::size_t map_node = 4 * sizeof(void*) + sizeof(string_t);

  void require_depth() const {
    if (open_.size() > depth_) throw std::runtime_error(fmt::format("nested deeper than {} levels", depth_));
  }
  void spend(std::size_t bytes) {
    if (bytes > memory_) throw std::runtime_error("it holds more values than a text of its length may hold");
    memory_ -= bytes;
  }
  bool add(Json&& value) {
    require_depth();
    spend(sizeof(Json));
    if (open_.empty()) {
      root_ = std::move(value);
      added_ = &root_;
    } else if (Json& parent = *open_.back(); parent.is_array()) {
      added_ = &parent.get_ref<Json::array_t&>().emplace_back(std::move(value));
    } else {
      *member_ = std::move(value);
      added_ = member_;
    }
    return true;
  }
  bool open(Json&& value, std::size_t bytes) {
    spend(bytes);
    add(std::move(value));
    open_.push_back(added_);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::size_t memory_, depth_;  // memory_: bytes left
  Json root_;
  std::vector<Json*> open_;  // the values around the next one
  Json *member_ = nullptr, *added_ = nullptr;
};

/// Spells out the bytes that are not UTF-8 in all strings of a value.
void spell_out(nlohmann::ordered_json& value) {
  if (value.is_string()) {
    auto& text = value.get_ref<std::string&>();
    if (well_formed_prefix(text) < text.size()) text = spelled_out(text, [](char32_t) { return false; });
  } else if (value.is_structured()) {
    for (auto& item : value) spell_out(item);
  }
}

}  // namespace

Json parse_strict_json(std::string_view text, const JsonBounds& bounds) {
  constexpr std::size_t free_memory = 1 << 20, expansion = 16;  // bytes of the tree for each byte of the text
  if (text.size() > bounds.bytes) {
    throw std::runtime_error(fmt::format("it has {} bytes, more than the limit of {}", text.size(), bounds.bytes));
  }
  if (text.find('\0') != std::string_view::npos) throw std::runtime_error("it contains a zero byte");
  Builder builder(free_memory + expansion * text.size(), bounds.depth);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string json_text(nlohmann::ordered_json value, int indent) {
  spell_out(value);
  return value.dump(indent);
}

std::optional<std::int64_t> whole_number(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  return value.get<std::int64_t>();
}

JsonReader::JsonReader(const Json& object) : object_(object) {
  if (!object.is_object()) throw std::runtime_error("a value that must be an object is not one");
}

const Json& JsonReader::member(const char* name) {
  const auto found = object_.find(name);
  if (found == object_.end()) throw std::runtime_error(std::string(name) + " is missing");
  ++asked_;
  return *found;
}

void JsonReader::read(const char* name, const Json& value, std::int64_t& to) {
  const std::optional<std::int64_t> number = whole_number(value);
  if (!number || *number < 0) throw std::runtime_error(std::string(name) + " is not a count");
  to = *number;
}

void JsonReader::read(const char* name, const Json& value, std::string& to) {
  if (!value.is_string()) throw std::runtime_error(std::string(name) + " is not text");
  to = value.get<std::string>();
}

void JsonReader::hash(const char* name, std::string& to) {
  (*this)(name, to);
  if (to.size() != 32 || to.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw std::runtime_error(std::string(name) + " is not a hash");
  }
}

void JsonReader::format(const char* name, std::int64_t version, const char* refusal) {
  std::string stated;
  std::int64_t stated_version = 0;
  (*this)("format", stated);
  (*this)("format_version", stated_version);
  if (stated != name || stated_version != version) throw std::runtime_error(refusal);
}

void JsonReader::finish() const {
  if (asked_ != object_.size()) throw std::runtime_error("an object has members that are not known");
}

}  // namespace ringtrain
