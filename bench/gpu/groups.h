// The groups of gpu_bench, each of which measures one thing and adds its rows. The sizes are for an H200; the emulator
// of the tests gets sizes that it can finish.
#pragma once

#include "bench/gpu/results.h"

namespace ringtrain::bench {

struct Settings {
  bool quick = false;        // fewer sizes and repetitions
  bool tiny = false;         // sizes for the emulator, whose figures mean nothing
  double longest_step = 45;  // seconds: longer steps are extrapolated
};

/// Facts of the machine, bandwidth of copies, rate of matrix products.
void machine_group(Results& results, const Settings& settings);
/// Rates of attention, forward and backward.
void attention_group(Results& results, const Settings& settings);
/// Rings of thread ranks that share the card compared with one rank, and the cost of a hop's communication.
void ring_group(Results& results, const Settings& settings);
/// Steps of the 1B model at growing contexts, and their memory.
void scaling_group(Results& results, const Settings& settings);

}  // namespace ringtrain::bench
