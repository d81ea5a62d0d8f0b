// How much of the ring's communication is left to wait for, over a link of known bandwidth: the measurement of
// tests/hosts.
#pragma once

#include "parallel/launch.h"

namespace ringtrain::testing {

/// Runs forward passes of a ring of all processes with attention for real, at ever more tokens a rank. Process 0 prints
/// a table: the time of a hop's computing, that of a block over the link by its bandwidth, the wait that is left at
/// least, and the wait that was measured. Return 0 if waits are no shorter than the link allows and gone where a hop
/// computes for long enough, else 1.
int measure_overlap(Launcher& launcher, double bytes_per_second);

}  // namespace ringtrain::testing
