// What the tests of `check` share: a config that is checked in this process, and the result of the check.
#pragma once

#include <string>

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
  /// Returns the verdict's lines; "" if the run is correct.
  static std::string wrong(const CheckReport& report) {
    if (report.first() == nullptr) return "";
    const std::string text = check_report(report);
    return text.substr(text.find("wrong: "));
  }
};

}  // namespace ringtrain::testing
