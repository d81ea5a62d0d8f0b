// The flags of evaluate's metrics. A build with the extras has them; one without refuses them in a sentence.
#pragma once

#include <functional>
#include <vector>

#include "train/evaluation/evaluation_metric.h"
#include "train/programs/command_line.h"

namespace ringtrain {

/// Adds the flags of all metrics to a command line. argc, argv: what will be parsed. Throws Error(usage) if they name a
/// flag of the extras that this build leaves out. Returns what gives, once it is parsed, the metrics that it asks for,
/// in the order of the JSON's fields: that throws Error(usage) for flags that do not go together, Error(data) for a
/// file that cannot be read.
std::function<std::vector<EvaluationMetric>()> add_metric_flags(CommandLine& app, int argc, char** argv);

}  // namespace ringtrain
