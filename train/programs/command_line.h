// Command lines with CLI11, for the mains alone: a mistake is an Error(usage) like every other, in one sentence.
#pragma once

#include <CLI/CLI.hpp>

#include "framework/error.h"

namespace ringtrain {

/// Parses into the app's options. Return false if help (or the version) was asked for and has been printed. prints:
/// whether this process is the one that does.
inline bool parse_command_line(CLI::App& app, int argc, char** argv, bool prints = true) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& asked) {
    if (prints) app.exit(asked);
    return false;
  } catch (const CLI::ParseError& error) {
    fail(ExitCode::usage, "{}; see {} --help", error.what(), app.get_name());
  }
}

}  // namespace ringtrain
