// The problems of a config, collected while it is read and checked, and reported all at once. Remembers where each key
// was given, so that a check of several keys can point to a line.
#pragma once

#include <fmt/core.h>

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ringtrain {

/// Where a value was given: in a line of the file, in a --set, or nowhere (both unset: it is a default).
struct Origin {
  int line = 0;
  int setting = -1;
};

class ConfigProblems {
 public:
  /// About a screenful.
  static constexpr std::size_t max_listed = 30;

  ConfigProblems(std::string path, const std::vector<std::string>& settings)
      : path_(std::move(path)), settings_(settings) {}

  /// Remembers where a key was given; the latest call counts.
  void given(const std::string& key, Origin origin) { origins_[key] = origin; }
  /// Adds a problem of a key with its origin; key "" means the file as a whole.
  void add(Origin origin, const std::string& key, const std::string& what);
  /// From now on, problems of any key are reported as problems of `key`, and `part` says of which part of it; "" ends
  /// this.
  void within(std::string key, std::string part = "");
  /// Adds a problem of a key, at the key's origin.
  void add(const std::string& key, const std::string& what);
  template <class First, class... Others>
  void add(const std::string& key, fmt::format_string<First, Others...> format, First&& first, Others&&... others) {
    add(key, fmt::format(format, std::forward<First>(first), std::forward<Others>(others)...));
  }
  /// Returns whether none of the keys has had a problem. If one has, a check of them would only repeat it.
  bool clean(std::initializer_list<const char*> keys) const;
  std::size_t count() const { return problems_.size(); }
  /// Returns whether there are more problems than will be reported.
  bool fill_a_page() const { return problems_.size() > max_listed; }
  /// Throws Error(usage) with the problems, one per line, in the order of the file, then of the settings: the first
  /// max_listed of them, and how many more there are.
  void throw_if_any() const;

 private:
  struct Problem {
    Origin origin;
    std::string text;
  };
  std::string path_;
  const std::vector<std::string>& settings_;
  std::map<std::string, Origin> origins_;
  std::set<std::string> faulty_;
  std::string within_, part_;
  std::vector<Problem> problems_;
};

/// Returns text for a message: cut to a readable length, on one line.
std::string excerpt(const std::string& text);

}  // namespace ringtrain
