// What the fuzzers share: the input as a file in memory, under one path for the whole process, and the two allowed
// outcomes: a result, or an Error with the exit code of a user's mistake.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "framework/error.h"

namespace ringtrain::fuzz {

/// Returns a folder in memory: the one that scripts/fuzz made for its run, and removes, or a new one.
inline const std::string& folder() {
  static const std::string path = [] {
    if (const char* given = std::getenv("RINGTRAIN_FUZZ_FOLDER")) return std::string(given);
    std::string name = "/dev/shm/ringtrain-fuzz-XXXXXX";
    if (!::mkdtemp(name.data())) std::abort();
    return name;
  }();
  return path;
}

inline void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// Runs action. Ends the process as a finding if it throws anything but an Error of this code.
template <class Action>
bool accepted(ExitCode code, Action&& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    if (error.code() == code) return false;
    std::fprintf(stderr, "an Error of code %d: %s\n", static_cast<int>(error.code()), error.what());
    std::abort();
  }
}

}  // namespace ringtrain::fuzz
