// Measures this machine with the product's own kernels and messages, and fits a hardware file by least squares:
// products by shape, attention by shape and mask, passes over memory, messages between thread ranks. It takes about a
// minute on an idle machine; the results of a busy one include its other work.
#pragma once

#include <vector>

#include "extras/planner/hardware.h"

namespace ringtrain {

/// One measured call: its parts, and its seconds (the median of several).
struct TimedCall {
  std::vector<double> parts;  // e.g. calls, FLOPs
  double seconds = 0;
};
/// Returns the non-negative seconds of one unit of each part whose sums are nearest to the samples, relative to them:
/// least squares of (predicted / measured - 1). All samples have the same number of parts.
std::vector<double> fit(const std::vector<TimedCall>& samples);

/// Returns the hardware of this machine for float32 and float64, if ranks are threads of one process.
Hardware measure_hardware();

}  // namespace ringtrain
