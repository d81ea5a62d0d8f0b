// The one reader of JSON: every text that comes from a disk or a user is read here, bounded in bytes, in depth and in
// memory while it is read, so that none can exhaust the stack or the machine. And structs as JSON: each names its
// members once, for reading and for writing. Failures are std::exceptions whose text says what is wrong: the caller
// adds the file.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// How much a text may be. Its tree takes at most 1 MiB and 16 bytes more for each byte of the text.
struct JsonBounds {
  std::size_t bytes = std::size_t{64} << 20;  // of the text
  std::size_t depth = 8;                      // objects and lists around a value
};

/// Returns the value of a whole text. Throws for what is no JSON, for what exceeds the bounds (before more is built),
/// and for an object that has a name twice.
nlohmann::json parse_strict_json(std::string_view text, const JsonBounds& bounds = {});

/// Returns a whole number from INT64_MIN to INT64_MAX, or nothing: for 1.0, 1e64, 2^63, text and the like. The
/// library's own get() casts any number, which is undefined for one as large as 1e64.
std::optional<std::int64_t> whole_number(const nlohmann::json& value);

// ---- Structs -------------------------------------------------------------------------------------------------------

/// Takes the members of a struct from an object, strictly: each is there and of its type. Whole numbers are counts,
/// from 0 to INT64_MAX.
class JsonReader {
 public:
  /// The object must outlive this. Throws for anything else.
  explicit JsonReader(const nlohmann::json& object);
  template <class T>
  void operator()(const char* name, T& to) {
    read(name, member(name), to);
  }
  /// Reads a hash: 32 lower-case hexadecimal digits.
  void hash(const char* name, std::string& to);
  /// Reads a hash that may be missing.
  void optional_hash(const char* name, std::string& to);
  /// Reads an enum as one of its names, which stand in the order of its values.
  template <class Enum, std::size_t count>
  void one_of(const char* name, Enum& to, const std::array<const char*, count>& names) {
    std::string text;
    (*this)(name, text);
    const auto found = std::ranges::find(names, text);
    if (found == names.end()) throw std::runtime_error(std::string(name) + " is of no known kind");
    to = static_cast<Enum>(found - names.begin());
  }
  /// Reads an object whose members body(visit) names.
  template <class Body>
  void object(const char* name, const Body& body) {
    JsonReader inner(member(name));
    body(inner);
    inner.finish();
  }
  /// Throws if the object has a member that nobody asked for.
  void finish() const;

 private:
  const nlohmann::json& member(const char* name);
  static void read(const char* name, const nlohmann::json& value, std::int64_t& to);
  static void read(const char* name, const nlohmann::json& value, std::string& to);
  template <class T>
  static void read(const char* name, const nlohmann::json& value, std::vector<T>& to);
  template <class T>
  static void read(const char* name, const nlohmann::json& value, T& to);

  const nlohmann::json& object_;
  std::size_t asked_ = 0;
};

/// Makes an object of members, in the order in which they come. (The library writes what is not finite as null.)
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
  template <class Enum, std::size_t count>
  void one_of(const char* name, Enum value, const std::array<const char*, count>& names) {
    json[name] = names[static_cast<std::size_t>(value)];
  }
  template <class Body>
  void object(const char* name, const Body& body) {
    JsonWriter inner;
    body(inner);
    json[name] = std::move(inner.json);
  }

 private:
  template <class T>
  static nlohmann::ordered_json written(const T& value);
};

/// A struct with a static function visit_members(self, visit), which calls visit(name, member) for each member in the
/// order of the file. self is const when it is written.
template <class T>
concept JsonStruct = requires(const T& self, JsonWriter& visit) {
  T::visit_members(self, visit);
};

/// Returns a struct as an object.
template <JsonStruct T>
nlohmann::ordered_json write_json(const T& value) {
  JsonWriter writer;
  T::visit_members(value, writer);
  return std::move(writer.json);
}

template <class T>
void JsonReader::read(const char* name, const nlohmann::json& value, std::vector<T>& to) {
  if (!value.is_array()) throw std::runtime_error(std::string(name) + " is no list");
  for (const nlohmann::json& item : value) read(name, item, to.emplace_back());
}

template <class T>
void JsonReader::read(const char* /*name*/, const nlohmann::json& value, T& to) {
  JsonReader reader(value);
  T::visit_members(to, reader);
  reader.finish();
}

template <class T>
nlohmann::ordered_json JsonWriter::written(const T& value) {
  if constexpr (JsonStruct<T>) {
    return write_json(value);
  } else if constexpr (std::ranges::range<T> && !std::convertible_to<T, std::string_view>) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& item : value) list.push_back(written(item));
    return list;
  } else {
    return value;
  }
}

}  // namespace ringtrain
