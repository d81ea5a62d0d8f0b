// What a run would need and how fast it would go, before there is a run: memory by the run's own construction, time by
// the product's own schedule on given hardware. The program `plan` prints it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "extras/planner/hardware.h"
#include "extras/planner/rates.h"
#include "extras/planner/run_times.h"
#include "extras/planner/step_simulation.h"
#include "framework/config/config.h"
#include "layers/model/model_definition.h"
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
  Tell tell = {};
  /// Memory and messages are those of this model. Its time is that of the transformer that the config describes: what
  /// layers of a program's own compute is not known.
  ModelDefinition model = transformer_definition();
};

/// One hop of the ring's forward (or backward) pass in one layer, as the busiest rank has it.
struct HopTime {
  int hop = 0;
  double compute_seconds = 0;
  double transfer_seconds = 0;  // of what arrives during it; the last hop has none
};

/// Whether computing hides the ring's messages.
struct HopPlan {
  double compute_seconds = 0;   // of the mean block met at hops 1 and later, forward
  double transfer_seconds = 0;  // of what travels of a block's keys and values, over the slowest link of the ring
  // Of a rank: from there on computing takes longer than the transfer. 0 under a window, where a hop has as many pairs
  // however many tokens a rank has.
  double tokens_to_hide = 0;
  double tokens = 0;  // that it has
  // What tokens_to_hide comes of: FLOP/s of attention (its exponentials included), the slowest link, the share of pairs
  // that is visible, and bytes / FLOPs of a token that all pairs of it with themselves would cost.
  double flops_per_second = 0, bandwidth = 0, latency = 0, visible_share = 0, bytes_per_flop = 0;
  std::vector<HopTime> forward, backward;  // by hop; of a long ring the first ones
};

/// Layers of one mask, and their ring.
struct MaskPlan {
  MaskCount layers;
  HopPlan hop;                 // of one of them
  double key_value_bytes = 0;  // that all ranks of the mesh send in a step, of keys and values (and document ids),
  double gradient_bytes = 0;   // and of their gradients
};

/// What a config's ranks hold.
struct MemoryNeed {
  double device = 0;  // bytes, of the fullest device, or of a machine whose ranks share its memory
  double host = 0;    // bytes of a node, besides
  /// Returns the bytes of host and devices together, of one rank.
  double of_a_rank(const Hardware& hardware, std::int64_t world) const;
  /// Returns whether a device and a node of the hardware have so much memory.
  bool fits(const Hardware& hardware) const;
};

/// One stage of a config that has several.
struct StagePlan {
  std::int64_t first_step = 0, last_step = 0;
  std::int64_t seq_len = 0, global_batch_size = 0;
  double step_seconds = 0, tokens_per_second = 0, mfu = 0;
};

/// The answer to a PlanRequest.
struct Plan {
  PlanRequest request;  // its config as it holds in the stage with the longest sequences, which the steps here are of
  std::vector<StagePlan> stages;  // none: the config has one
  std::int64_t parameters = 0;
  std::vector<RankPlan> memory;  // by kind of rank
  bool fits = false;
  MemoryNeed need;
  StepFlops flops;          // of a step
  double useful_flops = 0;  // of a step: those that MFU counts
  RankRates rates;
  StepTimes times;
  std::vector<MaskPlan> masks;  // those that differ; whose queries see most comes first
  double step_tokens = 0;
  double tokens_per_second = 0, mfu = 0;
  double tokens = 0;  // of all steps
  RunTimes run;       // of all steps
  double hours = 0, device_hours = 0;
  std::int64_t longest_context = 0;  // tokens that fit with this mesh; 0: none does, or not asked for
};

/// Returns the plan: memory for all stages, times of the longest one, and the run's time as the sum over its stages.
/// Throws Error(usage) for what cannot be planned.
Plan make_plan(const PlanRequest& request);

/// Returns what the config's ranks hold, by the plans of its kinds of ranks.
MemoryNeed memory_need(const Config& config, const Hardware& hardware, const std::vector<RankPlan>& plans);
/// The same, planned here.
MemoryNeed memory_need(const Config& config, const Hardware& hardware,
                       const ModelDefinition& model = transformer_definition());
/// Returns the FLOPs that MFU counts, of a step of the request's config.
double useful_step_flops(const PlanRequest& request);
/// Returns what the config's ranks move between their devices and the host in a step.
OffloadedBytes offloaded_bytes(const Config& config, const std::vector<RankPlan>& plans);
/// Returns the longest sequence that a model takes: what its position table has, or, of rotary positions that are not
/// scaled, the length that it is meant for; as far as the config itself keeps to it. Else, 2^30.
std::int64_t model_limit(const Config& config);
/// Returns the longest sequence, in steps of 2 x mesh.sequence tokens up to model_limit(), with which a config's run
/// fits; 0 if none does.
std::int64_t longest_context(const Config& config, const Hardware& hardware,
                             const ModelDefinition& model = transformer_definition());

/// Returns the tokens of a rank from which on a hop's computing hides its transfer: the positive root of
/// seconds_per_pair * visible_share * tokens^2 = seconds_per_token * tokens + latency. With latency 0, 4 d FLOPs a pair
/// and 4 d bytes a token it is the FLOPS / bandwidth of Liu, Zaharia, Abbeel, 2023, section 3.
double tokens_to_hide(double seconds_per_pair, double visible_share, double seconds_per_token, double latency);

}  // namespace ringtrain
