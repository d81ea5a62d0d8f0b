// Runs programs on a disk with injected faults: sets the variables of tests/support/disk_faults.c for children that are
// started while it lives.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/train/child_process.h"

namespace ringtrain::testing {

class FaultyDisk {
 public:
  /// settings: names without RINGTRAIN_FAULT_, e.g. {{"PATH", "checkpoints/"}, {"AT", "3"}}.
  explicit FaultyDisk(const std::map<std::string, std::string>& settings) {
    set("LD_PRELOAD", binary_folder() + "/disk_faults.so");
    for (const auto& [name, value] : settings) set("RINGTRAIN_FAULT_" + name, value);
  }
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;
  ~FaultyDisk() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }

 private:
  void set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }
  std::vector<std::string> names_;
};

/// Runs a program on such a disk.
inline ChildResult run_on_faulty_disk(const std::map<std::string, std::string>& settings, const std::string& program,
                                      const std::vector<std::string>& arguments, const std::string& folder) {
  const FaultyDisk disk(settings);
  return run_child(program, arguments, folder);
}

// A sanitizer's runtime must come before any preloaded library.
#ifdef RINGTRAIN_SANITIZED
#define RINGTRAIN_NEEDS_FAULTY_DISK() GTEST_SKIP() << "sanitizers do not let a library be preloaded"
#else
#define RINGTRAIN_NEEDS_FAULTY_DISK() static_cast<void>(0)
#endif

}  // namespace ringtrain::testing
