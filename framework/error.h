// The one error type. A user's mistake, bad data, a failed rank: each is an Error that carries the exit code of the
// program and one sentence which names file:line or the numbers at fault and what to do. Thrown, caught only in main
// (and by a rank's launcher, which passes it to the other ranks). ensure() is for broken invariants: our own fault.
// refuse_call() is for arguments of public functions, whose fault is that of the caller.
#pragma once

#include <fmt/core.h>

#include <source_location>
#include <stdexcept>
#include <string>

#include "framework/language.h"

namespace ringtrain {

enum class ExitCode : int {
  done = 0,
  usage = 2,          // usage, config, a plan that cannot fit, a folder that cannot be written: before anything started
  data = 3,           // token file missing, damaged or unfit
  checkpoint = 4,     // checkpoint missing, damaged, unlike the config; a save that failed
  numeric = 5,        // NaN or infinity in loss or gradients; a run that `check` found wrong
  rank = 6,           // a rank failed or timed out
  device = 7,         // device or driver
  unsaved = 8,        // ended at once by a second SIGINT or SIGTERM
  internal = 70,      // our own fault
  interrupted = 130,  // saved after SIGINT
  terminated = 143,   // saved after SIGTERM
};

class Error : public std::runtime_error {
 public:
  /// sentence: what went wrong, where, and what to do.
  Error(ExitCode code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  /// Returns the exit code of a program that ends with it.
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Throws Error with a formatted sentence.
template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(internal) that names the place, when an invariant of ours does not hold. Never for a user's mistake.
inline void ensure(bool holds, const char* what, std::source_location location = std::source_location::current()) {
  if (!holds) [[unlikely]] {
    fail(ExitCode::internal, "{}:{}: internal error: {}", location.file_name(), location.line(), what);
  }
}

/// Where a public function was called: its last parameter is `const CallerLine& line = CallerLine::current()`.
using CallerLine = std::source_location;

/// Throws Error(usage), "FILE:LINE: sentence", of a call that breaks the rules of the function called. Where the caller
/// is one of the library's own sources, nobody else is to blame: Error(internal).
[[noreturn]] void refuse_call(const CallerLine& line, const std::string& sentence);

/// As refuse_call, unless it holds; what: a whole sentence.
inline void require_call(bool holds, const char* what, const CallerLine& line) {
  if (!holds) [[unlikely]]
    refuse_call(line, what);
}

}  // namespace ringtrain
