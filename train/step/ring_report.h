// How evenly the ring's work lies on its ranks, and how long they wait for each other: of each step for metrics.jsonl,
// and over all steps as a few lines at the end of a run. Pure: the loads travel in a message that the step has anyway.
// (What a layout will give is parallel/ring/ring_load.h.)
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "framework/sequence/mesh.h"
#include "framework/sequence/segments.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

/// Of a step, or sums over the steps of a run. What there are two of is of forward and of backward.
struct RingReport {
  /// The pairs of queries and keys that the busiest rank has, over the mean of its ring; the worst ring's.
  double pairs_imbalance = 1;
  /// The same of seconds in attention.
  std::array<double, 2> time_imbalance{1, 1};
  /// [N + 1] mean seconds of a rank, by the hop that had to wait; the last: the end.
  std::array<std::vector<double>, 2> hop_waits;
  double seconds = 0;  // of the steps that count
  int steps = 0;       // that were added, all

  /// Adds a step that took so long. The first of several steps does not count: it meets cold caches and untouched
  /// memory.
  void add(const RingReport& step, double step_seconds);
  /// Returns three lines for people, with means over the steps that were added; none if there was no step.
  std::vector<std::string> lines() const;
};

/// Appends what a rank tells the others of its load: the same number of values on every rank of a mesh.
void append(std::vector<double>& values, const RingLoads& own);
/// Returns what all ranks' loads come to. loads: of the mesh's ranks, in order, as append() wrote them.
RingReport ring_report(const Mesh& mesh, std::span<const std::span<const double>> loads);

/// Returns a number with six digits, as metrics.jsonl has what is measured.
double six_digits(double value);
/// Returns the report as a JSON object.
nlohmann::ordered_json to_json(const RingReport& report);

}  // namespace ringtrain
