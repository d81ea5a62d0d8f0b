// The needs and the speed of a run, predicted before it starts: memory from the run's own constructors, time from the
// product's own schedule on given hardware. The program `plan` prints it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "extras/planner/hardware.h"
#include "extras/planner/rates.h"
#include "extras/planner/step_simulation.h"
#include "framework/config/config.h"
#include "layers/model/step_work.h"
#include "train/engine/rank_state.h"

namespace ringtrain {

/// The input of a plan.
struct PlanRequest {
  Config config;
  Hardware hardware;
  double tokens = 0;            // of the whole training; 0: those of the config's steps
  double mean_document = 0;     // tokens, with packing documents; 0: one document a sequence
  bool longest_context = true;  // also find it: this plans about thirty other lengths
  std::int64_t made_for = 0;    // the length for which the model was made, if its rotary positions are not scaled
};

/// Whether computing hides the ring's messages.
struct HopPlan {
  double compute_seconds = 0;   // of the mean block of hops 1 and later, forward
  double transfer_seconds = 0;  // of the transferred part of a block's keys and values, over the ring's slowest link
  // Of a rank: with more tokens, computing takes longer than the transfer. 0 under a window, where the number of pairs
  // of a hop does not depend on a rank's tokens.
  double tokens_to_hide = 0;
  double tokens = 0;  // that the rank has
};

/// The memory that a config's ranks need.
struct MemoryNeed {
  double device = 0;  // bytes, of the fullest device, or of a machine whose ranks share its memory
  double host = 0;    // bytes of a node, in addition
  /// Returns whether a device and a node of the hardware have enough memory.
  bool fits(const Hardware& hardware) const;
};

/// The results for a step of a config.
struct StepPlan {
  MemoryNeed need = {};
  bool fits = false;
  StepTimes times = {};  // and the rates; 0 if they were not requested
  double tokens_per_second = 0, mfu = 0;
};

/// The answer to a PlanRequest.
struct Plan : StepPlan {
  PlanRequest request;  // its config as of the stage with the longest sequences, to which the step's values below apply
  std::vector<Plan> stages;  // empty: the config has only one
  std::int64_t parameters = 0;
  std::vector<RankPlan> memory;  // by kind of rank
  StepFlops flops;               // of a step
  double useful_flops = 0;       // of a step: those that count for MFU
  RankRates rates;
  HopPlan hop;                 // of the layers whose queries see the most keys
  double key_value_bytes = 0;  // that all ranks of the mesh send in a step, for keys and values (and document ids),
  double gradient_bytes = 0;   // and for their gradients
  double step_tokens = 0;
  // For the whole run. A token of an evaluation counts as a third of a token of training.
  double steps = 0, tokens = 0, evaluations = 0, evaluation_seconds = 0, hours = 0, device_hours = 0;
  std::int64_t checkpoint_bytes = 0;
  std::int64_t longest_context = 0;  // tokens that fit with this mesh; 0: none, or not requested
};

/// Returns the plan: memory for all stages, times of the longest stage, and the run's time as the sum over its stages.
/// Saves are not included: they are written while training continues. Throws Error(usage) for a config that cannot be
/// planned.
Plan make_plan(const PlanRequest& request);

/// Returns the bytes of a device, or of a machine of CPUs, that a run's tensors may use; a part remains free
/// (usable_memory()).
double usable_bytes(const Hardware& hardware);
/// Returns the memory that the config's ranks need, from the plans of its kinds of ranks.
MemoryNeed memory_need(const Config& config, const Hardware& hardware, const std::vector<RankPlan>& plans);
/// The same; makes the plans itself.
MemoryNeed memory_need(const Config& config, const Hardware& hardware);
/// Returns the FLOPs that count for MFU, in a step of the request's config.
double useful_step_flops(const PlanRequest& request);
/// Returns the plan of a step. plans: those of its kinds of ranks. useful_flops: from useful_step_flops().
/// without_room: whether a config that does not fit also gets times.
StepPlan plan_step(StepCase step, const std::vector<RankPlan>& plans, double useful_flops, bool without_room);
/// Returns the longest sequence with which a config's run fits, in steps of 2 x mesh.sequence tokens up to the length
/// of a table of positions; 0 if none fits.
std::int64_t longest_context(const Config& config, const Hardware& hardware);

/// Returns the tokens of a rank above which a hop's computing hides its transfer: the positive root of seconds_per_pair
/// * visible_share * tokens^2 = seconds_per_token * tokens + latency. With latency 0, 4 d FLOPs per pair, and 4 d bytes
/// per token, it is the FLOPS / bandwidth of Liu, Zaharia, Abbeel, 2023, section 3.
double tokens_to_hide(double seconds_per_pair, double visible_share, double seconds_per_token, double latency);

}  // namespace ringtrain
