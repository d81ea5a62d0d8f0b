// The only error type. A user's mistake, bad data, and a failed rank are all Errors, which carry the program's exit
// code and one sentence that names file:line or the numbers involved and says what to do. An Error is caught in main,
// by a rank's launcher, which passes it to the other ranks, and where the program can continue without what failed.
// ensure() is for broken invariants, which are our own mistakes. refuse_call() is for arguments of public functions,
// which are the caller's mistakes.
#pragma once

#include <fmt/core.h>

#include <source_location>
#include <stdexcept>
#include <string>

#include "framework/language.h"

namespace ringtrain {

enum class ExitCode : int {
  done = 0,
  usage = 2,          // usage, config, a plan that cannot fit, an unwritable folder: before anything started
  data = 3,           // token file missing, damaged, or unfit
  checkpoint = 4,     // checkpoint missing, damaged, or unlike the config; a save that failed
  numeric = 5,        // NaN or infinity in loss or gradients; a run that `check` found to be wrong
  rank = 6,           // a rank failed or timed out
  device = 7,         // device or driver
  unsaved = 8,        // ended at once by a second SIGINT or SIGTERM
  internal = 70,      // our own mistake
  interrupted = 130,  // saved after SIGINT
  terminated = 143,   // saved after SIGTERM
};

class Error : public std::runtime_error {
 public:
  /// sentence: what went wrong, where, and what to do.
  Error(ExitCode code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  /// Returns the exit code with which a program ends after this error.
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Throws Error with a formatted sentence.
template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(internal) that names the source location if an invariant of ours does not hold. Never for a user's
/// mistake.
inline void ensure(bool holds, const char* what, std::source_location location = std::source_location::current()) {
  if (!holds) [[unlikely]] {
    fail(ExitCode::internal, "{}:{}: internal error: {}", location.file_name(), location.line(), what);
  }
}

/// Where a public function was called: its last parameter is `const CallerLine& line = CallerLine::current()`.
using CallerLine = std::source_location;

/// Throws Error(usage), "FILE:LINE: sentence", for a call that breaks the rules of the called function. If the caller
/// is one of the library's own sources, it is our own mistake: Error(internal).
[[noreturn]] void refuse_call(const CallerLine& line, const std::string& sentence);

/// Calls refuse_call unless `holds` is true; what: a whole sentence.
inline void require_call(bool holds, const char* what, const CallerLine& line) {
  if (!holds) [[unlikely]]
    refuse_call(line, what);
}

}  // namespace ringtrain
