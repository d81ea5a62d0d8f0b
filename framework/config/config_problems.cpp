#include "framework/config/config_problems.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "framework/counted.h"
#include "framework/error.h"
#include "framework/text/utf8.h"

namespace ringtrain {

void ConfigProblems::add(Origin origin, const std::string& key, const std::string& what) {
  faulty_.insert(key);
  std::string text;
  if (origin.setting >= 0) {
    const std::string& setting = settings_[origin.setting];
    text = fmt::format("--set {}: ", excerpt(setting));
    if (!key.empty() && !setting.starts_with(key + "=")) text += excerpt(key) + ": ";
  } else {
    text = path_ + (origin.line > 0 ? fmt::format(":{}: ", origin.line) : ": ");
    if (!key.empty()) text += excerpt(key) + ": ";
  }
  text += what;
  problems_.push_back({origin, std::move(text)});
}

void ConfigProblems::within(std::string key, std::string part) {
  within_ = std::move(key);
  part_ = std::move(part);
}

void ConfigProblems::add(const std::string& key, const std::string& what) {
  const std::string& given_key = within_.empty() ? key : within_;
  const auto found = origins_.find(given_key);
  add(found == origins_.end() ? Origin{} : found->second, given_key,
      within_.empty() ? what : fmt::format("{}: {}: {}", part_, key, what));
}

bool ConfigProblems::clean(std::initializer_list<const char*> keys) const {
  return std::none_of(keys.begin(), keys.end(), [&](const char* key) { return faulty_.contains(key); });
}

void ConfigProblems::throw_if_any() const {
  if (problems_.empty()) return;
  std::vector<Problem> sorted = problems_;
  const auto rank = [](const Problem& problem) {
    return std::pair(problem.origin.setting,
                     problem.origin.line > 0 ? problem.origin.line : std::numeric_limits<int>::max());
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Problem& a, const Problem& b) { return rank(a) < rank(b); });
  std::string text;
  for (std::size_t i = 0; i < std::min(sorted.size(), max_listed); ++i) text += (i ? "\n" : "") + sorted[i].text;
  if (sorted.size() > max_listed) {
    text += fmt::format("\n{}: {}; fix these first", path_, counted(problems_.size() - max_listed, "more problem"));
  }
  throw Error(ExitCode::usage, text);
}

std::string excerpt(const std::string& text) {
  constexpr std::size_t longest = 80;
  std::string line = text;
  for (char& c : line) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  if (line.size() <= longest) return line;
  return line.substr(0, code_point_border(line, longest - 3)) + "...";
}

}  // namespace ringtrain
