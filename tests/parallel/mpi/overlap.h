// How much of the ring's communication is left to wait for, over a link of known bandwidth and delay: the measurement
// of tests/hosts.
#pragma once

#include "parallel/launch/launcher.h"

namespace ringtrain::testing {

struct Link {
  double bytes_per_second = 0;
  double delay = 0;  // seconds, one way
};

/// Runs forward passes of a ring of all processes with attention for real, at ever more tokens a rank. Process 0 prints
/// a table: the time of a hop's computing, that of a block over the link as predicted, the wait that is left at least,
/// and the wait that was measured; and from how many tokens on computing hides the transfer, as predicted by FLOP/s
/// over bandwidth. Then backward passes, where gradients move, too: with those of a block as one message, and in parts.
/// Returns 0 if waits are no shorter than the link allows, and gone where a hop computes for long enough, else 1.
int measure_overlap(Launcher& launcher, const Link& link);

/// Runs forward passes that compute nothing, in float32 and in bfloat16, over a link without delay. Process 0 prints
/// how long a hop waits. Returns 0 if float32 takes what the link allows within 10 %, and bfloat16 half of it within 6
/// %.
int measure_transfers(Launcher& launcher, const Link& link);

}  // namespace ringtrain::testing
