// How evenly the ring's work lies on its ranks, and how long they wait for each other: of each step for metrics.jsonl,
// and over all steps as a few lines at the end of a run. Pure: the loads travel in a message that the step has anyway.
// (What a layout will give is parallel/ring/ring_load.h.)
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "framework/sequence/mesh.h"
#include "framework/sequence/segments.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

/// Forward or backward of one step, over all ranks.
struct RingPassReport {
  double time_imbalance = 1;      // the busiest rank's seconds in attention over the mean of its ring; the worst ring's
  std::vector<double> hop_waits;  // [N + 1] mean seconds of a rank, by the hop that had to wait; the last: the end
};

struct RingReport {
  double pairs_imbalance = 1;  // as time_imbalance, of pairs of queries and keys
  RingPassReport forward, backward;
};

/// Appends what a rank tells the others of its load: the same number of values on every rank of a mesh.
void append(std::vector<double>& values, const RingLoad& own);
/// Returns what all ranks' loads come to. loads: of the mesh's ranks, in order, as append() wrote them.
RingReport ring_report(const Mesh& mesh, std::span<const std::span<const double>> loads);

/// Returns a number with six digits, as metrics.jsonl has what is measured.
double six_digits(double value);
/// Returns the report as a JSON object.
nlohmann::ordered_json to_json(const RingReport& report);

/// Means over the steps of a run.
class RingSummary {
 public:
  /// seconds: of the step.
  void add(const RingReport& report, double seconds);
  /// Returns three lines for people; none if there was no step. The first of several steps does not count: it meets
  /// cold caches and untouched memory.
  std::vector<std::string> lines() const;

 private:
  RingReport sum_;  // of the steps that count
  double seconds_ = 0;
  int steps_ = 0;  // all
};

}  // namespace ringtrain
