// What the tests of the config's reader share: the minimal config, and the messages of reading a text.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "framework/config/read_config.h"

namespace ringtrain::testing {

using Settings = std::vector<std::string>;

/// The message of an action; "" if it throws no Error. Anything but Error(usage) fails the test.
template <class Action>
std::string complaint_of(const Action& action) {
  try {
    action();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
}
/// The messages of reading a text, and of a higher floor's rule.
inline std::string complaint(const std::string& text, const Settings& settings = {}, const ConfigRule& rule = {}) {
  return complaint_of([&] { parse_config(text, "x.yaml", settings, ConfigUse::run, rule); });
}

/// The minimum that a config must contain, on one line, so that a test's own lines begin at 2.
inline const std::string base = "training: {seq_len: 64, steps: 10}\ndata: {train: a.h5}\n";
/// The same, with all sections open for one more key.
inline std::string with(const std::string& section, const std::string& key) {
  std::string text = "training:\n  seq_len: 64\n  steps: 10\ndata:\n  train: a.h5\n";
  if (section == "training") return "training:\n  seq_len: 64\n  steps: 10\n  " + key + "\ndata:\n  train: a.h5\n";
  if (section == "data") return text + "  " + key + "\n";
  return text + section + ":\n  " + key + "\n";
}

}  // namespace ringtrain::testing
