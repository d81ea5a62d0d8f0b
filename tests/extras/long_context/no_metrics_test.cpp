// A build without the extras refuses each flag of their metrics, and no other.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "train/programs/metric_flags.h"

namespace ringtrain::testing {
namespace {

/// Returns the flags that a source adds to a command line.
std::set<std::string> flags_of(const std::string& path) {
  std::ifstream file(source_folder() + "/" + path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::regex added(R"(add_\w+(?:<\w+>)?\(\s*"(--[a-z-]+)\")");
  std::set<std::string> flags;
  for (std::sregex_iterator at(text.begin(), text.end(), added), end; at != end; ++at) flags.insert((*at)[1]);
  return flags;
}

void add_to_a_core_build(const std::string& argument) {
  CommandLine app("a test", "evaluate");
  std::string program = "evaluate", given = argument;
  char* arguments[] = {program.data(), given.data()};
  const auto metrics = add_metric_flags(app);
  app.allow_extras();
  EXPECT_TRUE(parse_command_line(app, 2, arguments));
  EXPECT_TRUE(metrics().empty());
}

TEST(NoMetrics, RefusesTheFlagsOfTheExtrasAndNoOther) {
  const std::set<std::string> extras = flags_of("extras/long_context/metrics_command.cpp");
  EXPECT_EQ(extras.size(), 14U);
  for (const std::string& flag : extras) {
    for (const std::string& argument : {flag, flag + "=3"}) {
      expect_error_holding(ExitCode::usage, {flag + " belongs to the extras", "--preset full"},
                           [&] { add_to_a_core_build(argument); });
    }
  }
  const std::set<std::string> core = flags_of("train/programs/evaluate_command.cpp");
  EXPECT_GE(core.size(), 12U);
  for (const std::string& flag : core) EXPECT_NO_THROW(add_to_a_core_build(flag)) << flag;
}

}  // namespace
}  // namespace ringtrain::testing
