// How evenly a step's work lies on the ranks of its rings, and how long they wait for each other, for metrics.jsonl.
// Pure: the loads travel in a message that the step has anyway. (parallel/ring/ring_load.h says what a layout will
// give.)
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "framework/sequence/mesh.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

/// What there are two of is of forward and of backward.
struct RingReport {
  /// The pairs of queries and keys that the busiest rank has, over the mean of its ring; the worst ring's.
  double pairs_imbalance = 1;
  /// The same of seconds in attention.
  std::array<double, 2> time_imbalance{1, 1};
  /// [N + 1] mean seconds of a rank, by the hop that had to wait; the last: the end.
  std::array<std::vector<double>, 2> hop_waits;
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
