// The keys of one JSON object in a file from another program: the caller reads each by name and type, and can list the
// unread ones at the end. A value of the wrong type is an Error(checkpoint) that names file and key.
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
  /// prefix: of the keys in messages, "" or "rope_scaling.". The object must outlive this one.
  JsonKeys(const nlohmann::json& object, std::string path, std::string prefix = "");

  /// Returns whether the object has the key and it is not null. Each of these functions marks the key as read.
  bool has(const std::string& key);
  /// Returns whether the object has the key, even if it is null.
  bool names(const std::string& key);
  /// Returns the key's value, or other if it is absent. Throws for null: call has() first if null has a meaning.
  std::int64_t integer(const std::string& key, std::int64_t other);
  double real(const std::string& key, double other);
  bool flag(const std::string& key, bool other);
  std::string text(const std::string& key, const std::string& other);
  std::vector<double> reals(const std::string& key);
  std::vector<std::string> texts(const std::string& key);
  /// Returns the value of a key that exists.
  const nlohmann::json& at(const std::string& key);

  bool asked(const std::string& key) const { return asked_.contains(key); }
  /// Returns the keys that nobody read.
  std::vector<std::string> unasked() const;
  const std::string& path() const { return path_; }
  /// Throws Error(checkpoint): "FILE: KEY: what".
  [[noreturn]] void refuse(const std::string& key, const std::string& what) const;
  /// Does the same for a format and its arguments.
  template <class First, class... Others>
  [[noreturn]] void refuse(const std::string& key, fmt::format_string<First, Others...> what, First&& first,
                           Others&&... others) const {
    refuse(key, fmt::format(what, std::forward<First>(first), std::forward<Others>(others)...));
  }

 private:
  /// Returns take()'s result for the key's value, or `other` if the key is absent. Throws if take() returns nothing.
  template <class T>
  T value(const std::string& key, T other, const char* wanted, std::optional<T> (*take)(const nlohmann::json&));
  const nlohmann::json* find(const std::string& key);

  const nlohmann::json& object_;
  std::string path_, prefix_;
  std::set<std::string> asked_;
};

/// Returns whether a key's value requests nothing: null, false, empty text, an empty list or object.
bool asks_for_nothing(const nlohmann::json& value);

/// Returns a value for a message: on one line, and not too long.
std::string shown(const nlohmann::json& value);

/// Returns the object that is a file's whole text. Throws Error(checkpoint), which names the file.
nlohmann::json parse_object(const std::string& text, const std::string& path);

}  // namespace ringtrain
