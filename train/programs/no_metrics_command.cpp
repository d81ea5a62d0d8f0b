// The commands without the extras: evaluate has no metrics and refuses their flags, and there is no extend.
#include <algorithm>
#include <array>
#include <string_view>

#include "train/programs/commands.h"
#include "train/programs/metric_flags.h"

namespace ringtrain {

namespace {

constexpr std::array<std::string_view, 14> flags{
    "--against",   "--tasks",        "--task-samples", "--task-depths", "--task-candidates",
    "--task-seed", "--greedy-match", "--longppl",      "--trunc-len",   "--sliding-window",
    "--alpha",     "--beta",         "--save-path",    "--key-tokens"};

}  // namespace

std::function<std::vector<EvaluationMetric>()> add_metric_flags(CommandLine& /*app*/, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i], name = argument.substr(0, argument.find('='));
    if (std::ranges::find(flags, name) == flags.end()) continue;
    fail(ExitCode::usage,
         "evaluate: {} belongs to the extras, which this build leaves out: cmake --preset full && cmake --build "
         "--preset full builds them",
         name);
  }
  return [] { return std::vector<EvaluationMetric>(); };
}

int (*const extend_command)(int argc, char** argv) = nullptr;

}  // namespace ringtrain
