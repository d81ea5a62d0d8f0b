// How much of the ring's communication remains as waits, over a link of known bandwidth and delay: the measurement of
// tests/hosts.
#pragma once

#include "parallel/launch/launcher.h"

namespace ringtrain::testing {

struct Link {
  double bytes_per_second = 0;
  double delay = 0;  // seconds, one way
};

/// Runs forward passes of a ring of all processes with real attention, with increasing tokens per rank. Process 0
/// prints a table: the time of a hop's computing, that of a block over the link as predicted, the minimum remaining
/// wait, and the measured wait; and the number of tokens above which computing hides the transfer, as predicted by
/// FLOP/s over bandwidth. Then runs backward passes, which also move gradients: with those of a block as one message,
/// and in parts. Returns 0 if waits are not shorter than the link allows, and disappear if a hop computes for long
/// enough, otherwise 1.
int measure_overlap(Launcher& launcher, const Link& link);

/// Runs forward passes that compute nothing, in float32 and in bfloat16, over a link without delay. Process 0 prints
/// how long a hop waits. Returns 0 if float32 takes the link's time within 10 %, and bfloat16 half of it within 6 %.
int measure_transfers(Launcher& launcher, const Link& link);

}  // namespace ringtrain::testing
