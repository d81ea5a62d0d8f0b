// One page of a finished or running run: curves, memory, the ring's waits, evaluation. HTML with SVG inside, without
// scripts and without anything to fetch; every number comes from metrics.jsonl and is printed as it stands there.
#pragma once

#include <string>

namespace ringtrain {

/// Return the page of a run's folder. Throws Error(usage) if it holds no metrics.jsonl with a training step.
std::string html_report(const std::string& folder);

}  // namespace ringtrain
