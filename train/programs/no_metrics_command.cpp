// The commands without the extras: evaluate has no metrics and refuses their flags, and there is no extend.
#include "train/programs/commands.h"
#include "train/programs/metric_flags.h"

namespace ringtrain {

std::function<std::vector<EvaluationMetric>()> add_metric_flags(CommandLine& app) {
  for (const char* flag :
       {"--against", "--tasks", "--task-samples", "--task-depths", "--task-candidates", "--task-seed", "--greedy-match",
        "--longppl", "--trunc-len", "--sliding-window", "--alpha", "--beta", "--save-path", "--key-tokens"}) {
    app.add_refused(flag,
                    "belongs to the extras, which this build leaves out: cmake --preset full && cmake --build "
                    "--preset full builds them");
  }
  return [] { return std::vector<EvaluationMetric>(); };
}

int (*const extend_command)(int argc, char** argv) = nullptr;

}  // namespace ringtrain
