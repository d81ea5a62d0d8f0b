// The flags of evaluate's metrics. A build with the extras has them; one without refuses them in a sentence.
#pragma once

#include <functional>
#include <vector>

#include "train/evaluation/evaluation_metric.h"
#include "train/programs/command_line.h"

namespace ringtrain {

/// Adds the flags of all metrics to a command line; in a build that leaves the extras out, each ends the program with a
/// sentence. Returns what gives, once the line is parsed, the metrics that it asks for, in the order of the JSON's
/// fields: that throws Error(usage) for flags that do not go together, Error(data) for a file that cannot be read.
std::function<std::vector<EvaluationMetric>()> add_metric_flags(CommandLine& app);

}  // namespace ringtrain
