// JSON of manifests, read strictly: bounded in size by the caller and in depth here; every member known, present and of
// its type, so that a garbled file is an error and never a guess. Failures are std::exceptions whose text names the
// member: the caller adds the file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

namespace ringtrain {

/// Return the value of a whole text. Throws for what is no JSON, for objects and lists inside more than 8 others, and
/// for an object that has a name twice.
nlohmann::json parse_strict_json(const std::string& text);

/// Return a whole number from INT64_MIN to INT64_MAX, or nothing: for 1.0, 1e64, 2^63, text and the like. The library's
/// own get() casts any number, which is undefined for one as large as 1e64.
std::optional<std::int64_t> whole_number(const nlohmann::json& value);

/// Reads members of one JSON object, each of a known name and type, and no others.
class StrictObject {
 public:
  /// members: how many the object must have.
  StrictObject(const nlohmann::json& json, std::size_t members);
  /// Return a whole number from 0 to INT64_MAX.
  std::int64_t integer(const char* name) const;
  std::string text(const char* name) const;
  /// Return a hash: 32 lower-case hexadecimal digits.
  std::string hash(const char* name) const;
  /// Reads a whole number, or text: for a struct whose members are listed once, for reading and for writing.
  void read(const char* name, std::int64_t& to) const { to = integer(name); }
  void read(const char* name, std::string& to) const { to = text(name); }
  const nlohmann::json& list(const char* name) const;
  const nlohmann::json& member(const char* name) const;

 private:
  const nlohmann::json& json_;
};

}  // namespace ringtrain
