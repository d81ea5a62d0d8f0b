// The only reader of JSON. Every text from a disk or a user is read here, with bounds on its bytes, its depth, and the
// memory used while reading, so it cannot exhaust the stack or the machine. Also converts structs to and from JSON:
// each names its members once, for reading and writing. Failures are std::exceptions whose text describes the problem;
// the caller adds the file.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ringtrain {

/// Limits of a text.
struct JsonBounds {
  std::size_t bytes = std::size_t{64} << 20;  // of the text
  std::size_t depth = 8;                      // nested objects and lists around a value
};

/// Returns the value of a whole text. Throws if it is not JSON, if it exceeds the bounds (before more is built), and
/// for an object with a duplicate name. The tree takes at most 1 MiB plus 16 bytes for each byte of the text.
nlohmann::json parse_strict_json(std::string_view text, const JsonBounds& bounds = {});

/// Returns the text of a value, as the library's dump() formats it. Bytes of a path or name that are not UTF-8, which
/// JSON cannot contain and for which dump() throws, are spelled out: "Mod\xe8le". The only writer of JSON;
/// tests/structure enforces this.
std::string json_text(nlohmann::ordered_json value, int indent = -1);

/// Returns a whole number from INT64_MIN to INT64_MAX, or nothing for 1.0, 1e64, 2^63, text, and the like. The
/// library's own get() casts any number, which is undefined for one as large as 1e64.
std::optional<std::int64_t> whole_number(const nlohmann::json& value);

// A struct names its members in a static function visit_members(self, visit), which calls visit(name, member) for each
// of them in the order of the file. A JsonReader fills them; a JsonWriter reads them from a const self.

/// Takes members from an object, strictly: each must exist and have its type: text, a count (0 to INT64_MAX), a struct,
/// or a vector of these.
class JsonReader {
 public:
  /// The object must outlive this. Throws for anything but an object.
  explicit JsonReader(const nlohmann::json& object);
  template <class T>
  void operator()(const char* name, T& to) {
    read(name, member(name), to);
  }
  /// Reads a hash: 32 lowercase hexadecimal digits.
  void hash(const char* name, std::string& to);
  /// Reads a hash that may be missing.
  void optional_hash(const char* name, std::string& to) {
    if (object_.contains(name)) hash(name, to);
  }
  /// Reads a member that may be missing.
  template <class T>
  void optional(const char* name, std::optional<T>& to) {
    if (object_.contains(name)) (*this)(name, to.emplace());
  }
  /// Reads "format" and "format_version". Throws `refusal` if they differ from these values.
  void format(const char* name, std::int64_t version, const char* refusal);
  /// Throws if the object has a member that was not read.
  void finish() const;

 private:
  const nlohmann::json& member(const char* name);
  static void read(const char* name, const nlohmann::json& value, std::int64_t& to);
  static void read(const char* name, const nlohmann::json& value, std::string& to);
  template <class T>
  static void read(const char* name, const nlohmann::json& value, T& to) {
    if constexpr (requires { to.emplace_back(); }) {
      if (!value.is_array()) throw std::runtime_error(std::string(name) + " is not a list");
      for (const nlohmann::json& item : value) read(name, item, to.emplace_back());
    } else {
      JsonReader reader(value);
      T::visit_members(to, reader);
      reader.finish();
    }
  }

  const nlohmann::json& object_;
  std::size_t asked_ = 0;
};

/// Makes an object of members, in the order in which they are added. (The library writes numbers that are not finite as
/// null.)
class JsonWriter {
 public:
  nlohmann::ordered_json json = nlohmann::ordered_json::object();

  template <class T>
  void operator()(const char* name, const T& value) {
    json[name] = written(value);
  }
  void hash(const char* name, const std::string& value) { json[name] = value; }
  void optional_hash(const char* name, const std::string& value) {
    if (!value.empty()) json[name] = value;
  }
  template <class T>
  void optional(const char* name, const std::optional<T>& value) {
    if (value) (*this)(name, *value);
  }

 private:
  template <class T>
  static nlohmann::ordered_json written(const T& value) {
    if constexpr (std::convertible_to<const T&, nlohmann::ordered_json>) {
      return value;
    } else if constexpr (requires { value.front(); }) {
      auto list = nlohmann::ordered_json::array();
      for (const auto& item : value) list.push_back(written(item));
      return list;
    } else {
      JsonWriter writer;
      T::visit_members(value, writer);
      return std::move(writer.json);
    }
  }
};

}  // namespace ringtrain
