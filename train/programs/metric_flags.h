// The flags of evaluate's metrics. A build with the extras has them; one without refuses them in a sentence.
#pragma once

#include <memory>
#include <vector>

#include "train/evaluation/evaluation_metric.h"
#include "train/programs/command_line.h"

namespace ringtrain {

/// The flags of all metrics.
class MetricFlags {
 public:
  virtual ~MetricFlags() = default;
  /// Returns the metrics that the parsed command line asks for, in the order of the JSON's fields. Throws Error(usage)
  /// for flags that do not go together, Error(data) for a file that cannot be read.
  virtual std::vector<std::shared_ptr<const EvaluationMetric>> metrics() const = 0;
};

/// Adds the flags to a command line, which must not outlive what is returned. argc, argv: what will be parsed. Throws
/// Error(usage) if they name a flag of the extras that this build leaves out.
std::unique_ptr<MetricFlags> add_metric_flags(CommandLine& app, int argc, char** argv);

}  // namespace ringtrain
