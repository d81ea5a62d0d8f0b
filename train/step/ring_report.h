// How evenly a step's work is distributed over the ranks of its rings, and how long they wait for each other, for
// metrics.jsonl. Pure: the loads are part of a message that the step sends anyway. (parallel/ring/ring_load.h predicts
// them for a layout.)
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "framework/sequence/mesh.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

/// Arrays of two hold forward and backward.
struct RingReport {
  /// The number of query-key pairs on the busiest rank, divided by the mean of its ring; for the worst ring.
  double pairs_imbalance = 1;
  /// The same for seconds in attention.
  std::array<double, 2> time_imbalance{1, 1};
  /// [N + 1] mean seconds of a rank, by the hop that had to wait; the last: the end.
  std::array<std::vector<double>, 2> hop_waits;
};

/// Appends a rank's load for the other ranks: the same number of values on every rank of a mesh.
void append(std::vector<double>& values, const RingLoads& loads);
/// Returns the report on all ranks' loads. loads: of the mesh's ranks, in order, as append() wrote them.
RingReport ring_report(const Mesh& mesh, std::span<const std::span<const double>> loads);

/// Returns a number with six digits, as metrics.jsonl writes measurements.
double six_digits(double value);
/// Returns the report as a JSON object.
nlohmann::ordered_json to_json(const RingReport& report);

}  // namespace ringtrain
