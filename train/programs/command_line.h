// Command lines with CLI11, for the mains alone: a mistake is an Error(usage) like every other, in one sentence.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/config/nearest_name.h"
#include "framework/error.h"
#include "train/programs/version.h"

namespace ringtrain {

/// Returns "; did you mean --NAME?" for the first argument that is no flag of the app but nearly one, else "".
inline std::string nearest_flag(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  for (const std::string& given : app.remaining()) {
    if (!given.starts_with('-')) continue;
    const std::string nearest = nearest_name(given.substr(0, given.find('=')), flags);
    if (!nearest.empty()) return "; did you mean " + nearest + "?";
  }
  return "";
}

/// Return the check of a whole number that has no upper bound of its own.
inline CLI::Validator at_least(std::int64_t least) {
  const auto check = [least](std::string& text) {
    std::int64_t value = 0;
    if (!CLI::detail::lexical_cast(text, value)) return fmt::format("{} is no whole number", text);
    return value >= least ? std::string() : fmt::format("{} is less than {}", text, least);
  };
  return CLI::Validator(check, fmt::format("{} or more", least));
}

/// Parses into the app's options. Return false if help (or the version) was asked for and has been printed. prints:
/// whether this process is the one that does.
inline bool parse_command_line(CLI::App& app, int argc, char** argv, bool prints = true) {
  app.set_version_flag("--version", version_text(), "print version, commit and build options");
  const auto asks_for_version = [](std::string_view argument) { return argument == "--version"; };
  try {
    // CLI11 2.1 would ask for the required options first.
    if (std::any_of(argv + 1, argv + argc, asks_for_version)) throw CLI::CallForVersion(version_text(), 0);
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& asked) {
    if (prints) app.exit(asked);
    return false;
  } catch (const CLI::ParseError& error) {
    fail(ExitCode::usage, "{}{}; see {} --help", error.what(), nearest_flag(app), app.get_name());
  }
}

}  // namespace ringtrain
