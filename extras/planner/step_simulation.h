// Simulates a whole training step: micro-batches, layers, ring passes, gradient buckets in transit, update, and
// gathered weights. Every rank has a clock; the latest one is the step's time. Pure.
#pragma once

#include <array>
#include <cstdint>

#include "extras/planner/rates.h"
#include "extras/planner/ring_simulation.h"
#include "framework/parameter_table.h"
#include "layers/model/step_work.h"

namespace ringtrain {

struct Config;

/// Bytes that a rank keeps in host memory and copies back when they are needed.
struct OffloadedBytes {
  double of_a_layer = 0;  // activations, copied out in forward and back in backward
  double of_update = 0;   // the optimizer's state, in and out at each update
};

/// The input of a simulation; all of it must outlive the call.
struct StepCase {
  const Config& config;
  const ParameterTable& table;
  const Hardware& hardware;
  double mean_document = 0;  // tokens of a document, with packing documents; 0: one document
  OffloadedBytes offload = {};
  std::int64_t max_events = 50'000'000;  // as many layers are simulated as this allows; the others are like them
};

/// Seconds of a step; parts are means over ranks.
struct StepTimes {
  double step_seconds = 0;
  double products = 0, attention_forward = 0, attention_backward = 0;  // computing; includes recompute
  double memory_passes = 0;                                            // norms, activations, residuals
  double update = 0;                                                   // sums of gradients, optimizer
  double ring_wait = 0;                   // exposed communication of the ring, and waiting for its slower ranks
  double reduction_wait = 0, gather = 0;  // of gradients; of weights
  double offload_wait = 0;                // copies to and from the host that no layer hides
};

/// A part of a sum, with its names in plan.json and for users.
template <class Sum>
struct SumPart {
  const char *key, *name;
  double Sum::*value;
};
inline constexpr std::array<SumPart<StepTimes>, 9> step_parts{
    {{"products", "matrix products", &StepTimes::products},
     {"attention_forward", "attention forward", &StepTimes::attention_forward},
     {"attention_backward", "attention backward", &StepTimes::attention_backward},
     {"memory_passes", "norms, activations, residuals", &StepTimes::memory_passes},
     {"update", "gradient sums and optimizer", &StepTimes::update},
     {"ring_wait", "waiting for the ring (exposed)", &StepTimes::ring_wait},
     {"reduction_wait", "waiting for gradients (exposed)", &StepTimes::reduction_wait},
     {"gather", "gathering weights", &StepTimes::gather},
     {"offload_wait", "copies to the host (exposed)", &StepTimes::offload_wait}}};

/// Throws Error(usage) for hardware that does not support the dtype or is too slow for any plan, and for rings that are
/// too long or too many to simulate.
StepTimes simulate_step(const StepCase& step);

/// Returns the ring of a config's micro-batch, for layers with a mask. mean_document only counts with packing
/// documents.
RingWork ring_work(const Config& config, const AttentionMask& mask, double mean_document);
/// Returns the costs of a forward or a backward pass of one layer with this work.
PassCosts pass_costs(const Config& config, const RankRates& rates, const LayerWork& work, bool backward);
/// Returns the seconds that each of `ranks` needs to exchange its share of `bytes` with all others (a reduce-scatter,
/// or an all-gather: the same bytes), over the levels of the hardware.
double exchange_seconds(const Hardware& hardware, std::int64_t ranks, double bytes);

}  // namespace ringtrain
