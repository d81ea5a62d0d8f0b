// What the tests of `check` share: a config that is checked in this process, and the result of the check.
#pragma once

#include <string>

#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/check/check_report.h"

namespace ringtrain::testing {

class CheckTest : public TextTest {
 protected:
  using TextTest::TextTest;
  CheckOptions options_of(const Config& config) const {
    CheckOptions options;
    options.train.config = config;
    options.train.dump = {.folder = at("dump"), .step = 1};
    return options;
  }
  CheckReport check(const Config& config) const { return check_run(options_of(config), quiet); }
  /// Expects the program, with ranks that are processes, to find a run correct.
  void expect_right_by_processes(const Config& config) const {
    write_config(config);
    ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // for the children: MPI libraries keep memory
    const std::string ranks = std::to_string(config.mesh.data * config.mesh.sequence);
    const ChildResult result =
        run_child(source_folder() + "/scripts/launch",
                  {"-n", ranks, "--", binary_folder() + "/check", "--config", "run.yaml", "--keep"}, folder);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(holds(result.out, "right: all "));
  }
  /// Returns the verdict's lines; "" if the run is correct.
  static std::string wrong(const CheckReport& report) {
    if (report.first() == nullptr) return "";
    const std::string text = check_report(report);
    return text.substr(text.find("wrong: "));
  }
};

}  // namespace ringtrain::testing
