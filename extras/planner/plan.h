// What a run would need and how fast it would go, before there is a run: memory by the run's own construction, time by
// the product's own schedule on given hardware. The program `plan` prints it. Pure.
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

/// What a plan is asked for.
struct PlanRequest {
  Config config;
  Hardware hardware;
  double tokens = 0;            // of the whole training; 0: those of the config's steps
  double mean_document = 0;     // tokens, with packing documents; 0: one document a sequence
  bool longest_context = true;  // find it, too: it plans some thirty other lengths
  std::int64_t made_for = 0;    // tokens that the model was made for, where nothing scales its rotary positions
};

/// Whether computing hides the ring's messages.
struct HopPlan {
  double compute_seconds = 0;   // of the mean block met at hops 1 and later, forward
  double transfer_seconds = 0;  // of what travels of a block's keys and values, over the slowest link of the ring
  // Of a rank: from there on computing takes longer than the transfer. 0 under a window, where a hop has as many pairs
  // however many tokens a rank has.
  double tokens_to_hide = 0;
  double tokens = 0;  // that it has
};

/// What a config's ranks hold.
struct MemoryNeed {
  double device = 0;  // bytes, of the fullest device, or of a machine whose ranks share its memory
  double host = 0;    // bytes of a node, besides
  /// Returns whether a device and a node of the hardware have so much memory.
  bool fits(const Hardware& hardware) const;
};

/// What a step of a config comes to.
struct StepPlan {
  MemoryNeed need = {};
  bool fits = false;
  StepTimes times = {};  // and the rates: 0 where they were not asked for
  double tokens_per_second = 0, mfu = 0;
};

/// The answer to a PlanRequest.
struct Plan : StepPlan {
  PlanRequest request;  // its config as it holds in the stage with the longest sequences, which the steps here are of
  std::vector<Plan> stages;  // none: the config has one
  std::int64_t parameters = 0;
  std::vector<RankPlan> memory;  // by kind of rank
  StepFlops flops;               // of a step
  double useful_flops = 0;       // of a step: those that MFU counts
  RankRates rates;
  HopPlan hop;                 // of the layers whose queries see most
  double key_value_bytes = 0;  // that all ranks of the mesh send in a step, of keys and values (and document ids),
  double gradient_bytes = 0;   // and of their gradients
  double step_tokens = 0;
  // Of the whole run. A token of an evaluation counts as a third of one of training.
  double steps = 0, tokens = 0, evaluations = 0, evaluation_seconds = 0, hours = 0, device_hours = 0;
  std::int64_t checkpoint_bytes = 0;
  std::int64_t longest_context = 0;  // tokens that fit with this mesh; 0: none does, or not asked for
};

/// Returns the plan: memory for all stages, times of the longest one, and the run's time as the sum over its stages.
/// Saves are not in it: they are written while training goes on.
/// Throws Error(usage) for what cannot be planned.
Plan make_plan(const PlanRequest& request);

/// Returns the bytes that a run's tensors may take of a device, or of a machine of CPUs, of which a part stays free
/// (usable_memory()).
double usable_bytes(const Hardware& hardware);
/// Returns what the config's ranks hold, by the plans of its kinds of ranks.
MemoryNeed memory_need(const Config& config, const Hardware& hardware, const std::vector<RankPlan>& plans);
/// The same, planned here.
MemoryNeed memory_need(const Config& config, const Hardware& hardware);
/// Returns the FLOPs that MFU counts, of a step of the request's config.
double useful_step_flops(const PlanRequest& request);
/// Returns the plan of a step. plans: of its kinds of ranks. useful_flops: of useful_step_flops(). without_room:
/// whether a config that does not fit has times, too.
StepPlan plan_step(StepCase step, const std::vector<RankPlan>& plans, double useful_flops, bool without_room);
/// Returns the longest sequence, in steps of 2 x mesh.sequence tokens up to what a table of positions has, with which a
/// config's run fits; 0 if none does.
std::int64_t longest_context(const Config& config, const Hardware& hardware);

/// Returns the tokens of a rank from which on a hop's computing hides its transfer: the positive root of
/// seconds_per_pair * visible_share * tokens^2 = seconds_per_token * tokens + latency. With latency 0, 4 d FLOPs a pair
/// and 4 d bytes a token it is the FLOPS / bandwidth of Liu, Zaharia, Abbeel, 2023, section 3.
double tokens_to_hide(double seconds_per_pair, double visible_share, double seconds_per_token, double latency);

}  // namespace ringtrain
