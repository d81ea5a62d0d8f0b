// Seconds of a rank's work on given hardware: the rates of the product's kernels for one rank of a mesh. Pure.
#pragma once

#include <algorithm>

#include "extras/planner/hardware.h"
#include "framework/error.h"

namespace ringtrain {

struct Config;
struct MeshConfig;

/// One rank's share of its device, or of a machine that several ranks share.
struct RankRates {
  double matmul = 0, attention_forward = 0, attention_backward = 0;  // FLOP/s
  double pair_seconds_forward = 0, pair_seconds_backward = 0;        // of a score, in addition
  double product_byte_seconds = 0;                                   // of products' rows, in addition to their FLOPs
  double memory = 0;                                                 // bytes/s
  double kernel_seconds = 0;                                         // of each call
  double peak = 0;                                                   // FLOP/s, dense
};

/// The processors of a machine's ranks; RankRates has the share of each while all of them compute.
struct SharedProcessors {
  double cores = 0;    // of the machine; 0: each rank has its own device
  double threads = 1;  // of a rank
  double ranks = 1;    // of the machine
  double rings = 1;    // that have ranks on the machine; all of them do the same

  /// Returns the cores of a rank while all ranks compute.
  double cores_of_rank() const { return cores > 0 ? std::min(threads, cores / ranks) : 1; }
  /// Returns how much faster a rank computes if only `active` ranks of each ring do.
  double speed(int active) const {
    return cores > 0 ? std::min(threads, cores / std::max(1.0, active * rings)) / cores_of_rank() : 1;
  }
};
SharedProcessors shared_processors(const Hardware& hardware, const MeshConfig& mesh);

/// The longest time in a plan: 30 billion years. Sums of such times are still finite.
inline constexpr double longest_seconds = 1e18;
/// Returns seconds that follow from a rate. Throws Error(usage) if they are NaN, or more than longest_seconds.
inline double checked_seconds(double seconds) {
  if (!(seconds <= longest_seconds)) {
    fail(ExitCode::usage, "the hardware is too slow: some work would take {:g} s; correct the rates in its file",
         seconds);
  }
  return seconds;
}

/// Returns the rates of each rank of a config's mesh. Those of attention are for blocks of the tokens that a rank has
/// of a sequence, or of the mean document (0: one per sequence) if that is shorter. Throws Error(usage) if the hardware
/// does not support the dtype.
RankRates rank_rates(const Hardware& hardware, const Config& config, double mean_document);

}  // namespace ringtrain
