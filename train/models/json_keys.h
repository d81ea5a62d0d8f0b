// The keys of one JSON object of a file that others wrote: each is asked for by name and type, and what nobody asked
// for shows at the end. A value of the wrong type is an Error(checkpoint) that names file and key.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/error.h"

namespace ringtrain {

class JsonKeys {
 public:
  /// prefix: of the keys in messages: "" or "rope_scaling.". The object must outlive this.
  JsonKeys(const nlohmann::json& object, std::string path, std::string prefix = "");

  /// Returns whether the object has the key and it is not null. Each of these functions marks the key as asked for.
  bool has(const std::string& key);
  /// Returns whether the object has the key, even if it is null.
  bool names(const std::string& key);
  /// Returns the key's value, or other if it is absent. Null is refused: has() comes first where it has a meaning.
  std::int64_t integer(const std::string& key, std::int64_t other);
  double real(const std::string& key, double other);
  bool flag(const std::string& key, bool other);
  std::string text(const std::string& key, const std::string& other);
  std::vector<double> reals(const std::string& key);
  std::vector<std::string> texts(const std::string& key);
  /// Returns the value of a key that exists.
  const nlohmann::json& at(const std::string& key);

  bool asked(const std::string& key) const { return asked_.contains(key); }
  /// Returns the keys that nobody asked for.
  std::vector<std::string> unasked() const;
  const std::string& path() const { return path_; }
  /// Throws Error(checkpoint): "FILE: KEY: what".
  [[noreturn]] void refuse(const std::string& key, const std::string& what) const;
  /// The same of a format and what it shows.
  template <class First, class... Rest>
  [[noreturn]] void refuse(const std::string& key, fmt::format_string<First, Rest...> what, First&& first,
                           Rest&&... rest) const {
    refuse(key, fmt::format(what, std::forward<First>(first), std::forward<Rest>(rest)...));
  }

 private:
  /// Returns what take() makes of the key's value, of a key that is not there `other`. Throws where it makes nothing.
  template <class T>
  T value(const std::string& key, T other, const char* wanted, std::optional<T> (*take)(const nlohmann::json&));
  const nlohmann::json* find(const std::string& key);

  const nlohmann::json& object_;
  std::string path_, prefix_;
  std::set<std::string> asked_;
};

/// Returns whether a key's value asks for nothing: null, false, no text, nothing in it.
bool asks_for_nothing(const nlohmann::json& value);

/// Returns a value as a message shows it: on one line, and not too long.
std::string shown(const nlohmann::json& value);

/// Returns the object that is a file's whole text. Throws Error(checkpoint) that names the file.
nlohmann::json parse_object(const std::string& text, const std::string& path);

}  // namespace ringtrain
