// Measures this machine with the product's own kernels and messages, and fits a hardware file to it by least squares:
// products by shape, attention by shape and mask, passes over memory, messages between thread ranks. About a minute on
// a machine that does nothing else; on a busy one it measures that.
#pragma once

#include <vector>

#include "extras/planner/hardware.h"

namespace ringtrain {

/// One measured call: what it was made of, and its seconds (the median of several).
struct TimedCall {
  std::vector<double> parts;  // e.g. calls, FLOPs
  double seconds = 0;
};
/// Returns the non-negative seconds of one unit of each part whose sums come nearest to the samples, as shares of
/// these: least squares of (predicted / measured - 1). All samples have as many parts.
std::vector<double> fit(const std::vector<TimedCall>& samples);

/// Returns the hardware of this machine for float32 and float64, its ranks being threads of one process.
Hardware measure_hardware();

}  // namespace ringtrain
