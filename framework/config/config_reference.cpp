#include "framework/config/config_reference.h"

#include <fmt/core.h>

#include <sstream>

#include "framework/config/config.h"
#include "framework/config/config_schema.h"

namespace ringtrain {

namespace {

constexpr std::size_t columns = 120;

constexpr const char* introduction = R"(# Configuration

<!-- `train --help-config` prints this page. Do not edit it: change framework/config/config_schema.cpp, then run
     `build/release/bin/train --help-config > docs/configuration.md`. -->

A config is strict YAML. An unknown, repeated, or invalid key is an error that names the file, the line, and the nearest
known name; all errors are listed at once. `--set KEY=VALUE` changes one key on the command line. `train --dry-run`
prints the complete config. Numbers of tokens can be written as 16K or 1M (K is 1,024, M is 1,024 K). Each entry has the
key, its default, the allowed values, and its meaning. The range (0, 1] excludes 0.
)";

/// Returns text broken into lines of at most `columns`; lines after the first are indented by two.
std::string wrapped(const std::string& text) {
  std::string lines;
  std::size_t used = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::string gap = used == 0 ? "" : used + 1 + word.size() > columns ? "\n  " : " ";
    lines += gap + word;
    used = (gap.size() > 1 ? 2 : used + gap.size()) + word.size();
  }
  return lines;
}

/// Returns a key's line.
std::string entry(const ConfigKey& key) {
  const std::string given = key.required ? "required" : fmt::format("`{}`", key.write(Config{}));
  // A word's meaning often begins with the list of words.
  const bool repeated = key.values.empty() || key.doc.starts_with(key.values);
  const std::string values = repeated ? "" : fmt::format("; {}", key.values);
  return wrapped(fmt::format("* `{}` ({}{}): {}", key.path, given, values, key.doc));
}

}  // namespace

std::string config_reference() {
  std::string page = introduction, section;
  for (const ConfigKey& key : config_keys()) {
    const std::string key_section = key.path.substr(0, key.path.find('.'));
    if (key_section != section) page += fmt::format("\n## {}\n\n", key_section);
    section = key_section;
    page += entry(key) + "\n";
  }
  return page;
}

}  // namespace ringtrain
