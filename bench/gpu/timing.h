// Times of work on a GPU's stream, by events around each repetition, after a warm-up; and of whole steps, by the host's
// clock between two moments at which the GPU is idle.
#pragma once

#include <functional>
#include <vector>

#include "framework/stream.h"

namespace ringtrain::bench {

struct Times {
  double median = 0, lowest = 0, highest = 0;  // seconds
};
/// Returns the summary of repetitions; for an even number, the median is the lower of the two in the middle.
Times summary(std::vector<double> seconds);

struct Repeat {
  int warm_up = 3;
  int repetitions = 15;
};

/// Gives body(i) to the stream for i = 0, 1, ... (including the warm-up: i may select among several sets of inputs) and
/// times each with a pair of events. Throws Error(device).
Times time_on_stream(Stream& stream, const Repeat& repeat, const std::function<void(int)>& body);

/// Returns the seconds that body and all work that it gave to the stream took.
double wall_seconds(Stream& stream, const std::function<void()>& body);

}  // namespace ringtrain::bench
