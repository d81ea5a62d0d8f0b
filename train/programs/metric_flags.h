// The flags of evaluate's metrics. A build with the extras has them; one without refuses them with a message.
#pragma once

#include <functional>
#include <vector>

#include "train/evaluation/evaluation_metric.h"
#include "train/programs/command_line.h"

namespace ringtrain {

/// Adds the flags of all metrics to a command line; in a build without the extras, each ends the program with a
/// message. Returns a function that, once the line is parsed, returns the requested metrics in the order of the JSON's
/// fields: it throws Error(usage) for flags that do not go together, and Error(data) for a file that cannot be read.
std::function<std::vector<EvaluationMetric>()> add_metric_flags(CommandLine& app);

}  // namespace ringtrain
