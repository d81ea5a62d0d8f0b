// Seconds of a rank's work on given hardware: the rates of the product's kernels there, for one rank of a mesh. Pure.
#pragma once

#include "framework/config/config.h"
#include "train/planning/hardware.h"

namespace ringtrain {

/// What one rank gets of its device, or of the machine that it shares.
struct RankRates {
  double matmul = 0, attention_forward = 0, attention_backward = 0;  // FLOP/s
  double pair_seconds_forward = 0, pair_seconds_backward = 0;        // of a score, besides
  double memory = 0;                                                 // bytes/s
  double kernel_seconds = 0;                                         // of each call
  double peak = 0;                                                   // FLOP/s, dense
};

/// Return the rates of each rank of a config's mesh. Throws Error(usage) if the hardware has no such dtype.
RankRates rank_rates(const Hardware& hardware, const MeshConfig& mesh, DType dtype);

}  // namespace ringtrain
