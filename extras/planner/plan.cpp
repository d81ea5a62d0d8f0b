#include "extras/planner/plan.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "framework/config/training_stages.h"
#include "framework/error.h"
#include "framework/system/system_memory.h"
#include "layers/model/model_definition.h"
#include "layers/model_spec.h"
#include "train/engine/checkpoint_size.h"

namespace ringtrain {

namespace {

/// Returns the average cost of a hop of the ring: the mean over the blocks of hops 1 and later.
HopPlan hop_plan(const Config& config, const Hardware& hardware, const RankRates& rates, const RingWork& work) {
  const int N = work.ranks();
  HopPlan plan{.tokens = static_cast<double>(work.tokens(0))};
  const LayerWork layer = layer_work(config.model, config.training);
  const PassCosts forward = pass_costs(config, rates, layer, /*backward=*/false);
  const LinkLevel link = hardware.slowest_of_ring(N);
  double pairs = 0, blocks = 0, travelled = 0;
  for (int hop = 1; hop < std::min(N, 64); ++hop) {
    for (int rank = 0; rank < N; ++rank) {
      const auto step = work.step(rank, hop);
      if (!step) continue;
      pairs += static_cast<double>(work.pairs(rank, step->owner));
      travelled += static_cast<double>(work.traveling_tokens(step->owner, rank));
      ++blocks;
    }
  }
  if (blocks == 0) return plan;
  plan.compute_seconds = forward.visit_seconds + pairs / blocks * forward.pair_seconds;
  plan.transfer_seconds = link.latency + forward.key_value_bytes * (travelled / blocks) / link.bandwidth;
  if (work.mask().window > 0) return plan;
  const double visible_share = pairs / blocks / (plan.tokens * plan.tokens);
  plan.tokens_to_hide =
      tokens_to_hide(forward.pair_seconds, visible_share, forward.key_value_bytes / link.bandwidth, link.latency);
  return plan;
}

/// Fills in the work of the ring in a step: the hop of the widest mask, and the bytes of all hops.
void plan_ring(Plan& plan) {
  const Config& config = plan.request.config;
  const LayerWork layer = layer_work(config.model, config.training);
  const PassCosts costs = pass_costs(config, plan.rates, layer, /*backward=*/true);
  const std::int64_t passes = config.training.global_batch_size / config.training.micro_batch_size;
  std::int64_t widest = -1;
  for (const MaskCount& layers : mask_counts(config.model, config.training)) {
    const RingWork work = ring_work(config, layers.mask, plan.request.mean_document);
    const RingTokens sent = work.sent();
    const double visits = layers.forward + layers.backward * (layer.attention_again ? 2 : 1);
    plan.key_value_bytes += static_cast<double>(passes) * visits * costs.key_value_bytes * sent.keys;
    plan.gradient_bytes += static_cast<double>(passes) * layers.backward * costs.gradient_bytes * sent.gradients;
    const std::int64_t window = layers.mask.window > 0 ? layers.mask.window : INT64_MAX;
    if (window > widest) plan.hop = hop_plan(config, plan.request.hardware, plan.rates, work);
    widest = std::max(widest, window);
  }
}

/// Returns the visible pairs of a sequence over all layers, with packed documents taken into account.
LayerPairs sequence_pairs(const PlanRequest& request) {
  Config config = request.config;
  config.mesh.sequence = config.training.micro_batch_size = 1;
  return layer_pairs(mask_counts(config.model, config.training), [&](const AttentionMask& mask) {
    return static_cast<double>(ring_work(config, mask, request.mean_document).pairs(0, 0));
  });
}

/// Fills in the cost of all steps, and of evaluations between them. stages: the plans of their steps.
void plan_run(Plan& plan, const PlanRequest& request, const std::vector<Plan>& stages, const ParameterTable& table) {
  const TrainingConfig& training = request.config.training;
  double seconds = 0;
  for (int i = 0; i < stage_count(training); ++i) {
    const Plan& stage = stages[i];
    const auto own_steps = static_cast<double>(last_step_of(training, i) - first_step_of(training, i) + 1);
    const double steps = request.tokens > 0 ? std::ceil(request.tokens / stage.step_tokens) : own_steps;
    plan.steps += steps;
    plan.tokens += steps * stage.step_tokens;
    seconds += steps * stage.times.step_seconds;
  }
  const EvaluationConfig& evaluation = request.config.evaluation;
  if (evaluation.interval > 0) plan.evaluations = std::floor(plan.steps / static_cast<double>(evaluation.interval));
  for (const std::int64_t length : evaluation.context_lengths) {
    const auto tokens = static_cast<double>(evaluation.target_blocks * length);
    plan.evaluation_seconds += tokens / plan.tokens_per_second / 3;  // only forward
  }
  plan.checkpoint_bytes = checkpoint_bytes(request.config, table);
  plan.hours = (seconds + plan.evaluations * plan.evaluation_seconds) / 3600;
  plan.device_hours = plan.hours * static_cast<double>(request.config.mesh.data * request.config.mesh.sequence);
}

/// Returns the bytes that the config's ranks move between their devices and the host in a step.
OffloadedBytes offloaded_bytes(const Config& config, const std::vector<RankPlan>& plans) {
  if (config.training.offload == Offload::none) return {};
  const MemoryUse& host = plans.front().host;
  const auto layers = static_cast<double>(trained_parts(config.model, config.training).layers);
  return {.of_a_layer = config.training.offloads(Offload::activations) && layers > 0
                            ? static_cast<double>(host[Tag::activations]) / layers
                            : 0,
          .of_update = 2 * static_cast<double>(host[Tag::optimizer])};
}

/// Returns the plan of one stage's steps, without values of the whole run; memory: that of the whole config's ranks.
Plan plan_of_steps(const PlanRequest& request, const ParameterTable& table, const std::vector<RankPlan>& memory) {
  const Config& config = request.config;
  const double useful = useful_step_flops(request);
  Plan plan;
  static_cast<StepPlan&>(plan) = plan_step(
      {.config = config, .table = table, .hardware = request.hardware, .mean_document = request.mean_document}, memory,
      useful, /*without_room=*/true);
  plan.request = request;
  plan.parameters = table.count();
  plan.memory = memory;
  plan.rates = rank_rates(request.hardware, config, request.mean_document);
  plan.flops = step_flops(config.model, config.training, sequence_pairs(request));
  plan.useful_flops = useful;
  plan.step_tokens = static_cast<double>(config.training.global_batch_size * config.training.seq_len);
  plan_ring(plan);
  return plan;
}

}  // namespace

double useful_step_flops(const PlanRequest& request) {
  const auto batch = static_cast<double>(request.config.training.global_batch_size);
  const LayerPairs pairs = sequence_pairs(request);
  return useful_flops(request.config.model, request.config.training)
      .total(batch * static_cast<double>(request.config.training.seq_len),
             {.forward = batch * pairs.forward, .backward = batch * pairs.backward});
}

double tokens_to_hide(double seconds_per_pair, double visible_share, double seconds_per_token, double latency) {
  const double a = seconds_per_pair * visible_share, b = seconds_per_token;
  return a > 0 ? (b + std::sqrt(b * b + 4 * a * latency)) / (2 * a) : 0;
}

bool MemoryNeed::fits(const Hardware& hardware) const {
  return device <= usable_bytes(hardware) && (hardware.node_memory == 0 || host <= hardware.node_memory);
}

double usable_bytes(const Hardware& hardware) {
  const auto bytes = static_cast<std::int64_t>(std::min(hardware.memory_bytes, 9e18));
  return static_cast<double>(hardware.cores > 0 ? usable_memory(bytes) : bytes);
}

MemoryNeed memory_need(const Config& config, const Hardware& hardware) {
  return memory_need(config, hardware,
                     plan_ranks(config, transformer_definition().table(config), training_purpose(config)));
}

MemoryNeed memory_need(const Config& config, const Hardware& hardware, const std::vector<RankPlan>& plans) {
  const std::int64_t world = config.mesh.data * config.mesh.sequence;
  double largest = 0, all = 0, host = 0;
  for (const RankPlan& plan : plans) {
    const auto bytes = static_cast<double>(plan.peak.total);
    largest = std::max(largest, bytes);
    host = std::max(host, static_cast<double>(plan.host.total));
    all += bytes * static_cast<double>(plan.ranks.size());
  }
  host *= static_cast<double>(hardware.ranks_of_node(world));
  if (hardware.cores == 0) return {largest, host};
  const std::int64_t here = hardware.ranks_of_machine(world);
  return {here == world ? all : largest * static_cast<double>(here), host};
}

StepPlan plan_step(StepCase step, const std::vector<RankPlan>& plans, double useful_flops, bool without_room) {
  const Config& config = step.config;
  StepPlan plan{.need = memory_need(config, step.hardware, plans)};
  plan.fits = plan.need.fits(step.hardware);
  if (!plan.fits && !without_room) return plan;
  step.offload = offloaded_bytes(config, plans);
  plan.times = simulate_step(step);
  const double seconds = plan.times.step_seconds;
  plan.tokens_per_second = static_cast<double>(config.training.global_batch_size * config.training.seq_len) / seconds;
  plan.mfu = useful_flops / seconds /
             (rank_rates(step.hardware, config, 0).peak * static_cast<double>(config.mesh.data * config.mesh.sequence));
  return plan;
}

std::int64_t longest_context(const Config& config, const Hardware& hardware) {
  const bool table = model_spec(config.model).positions == Positions::learned;
  const std::int64_t limit = table ? config.model.max_position_embeddings : std::int64_t{1} << 30;
  const std::int64_t unit = 2 * config.mesh.sequence;
  const auto fits = [&](int units) {
    Config other = config;
    other.training.seq_len = units * unit;
    return memory_need(other, hardware).fits(hardware);
  };
  const auto units = std::views::iota(1, static_cast<int>(limit / unit) + 1);
  return (*std::ranges::partition_point(units, fits) - 1) * unit;
}

Plan make_plan(const PlanRequest& request) {
  const TrainingConfig& training = request.config.training;
  const int stages = stage_count(training);
  if (request.tokens > 0 && stages > 1) {
    fail(ExitCode::usage, "--total-tokens cannot be combined with training.stages, which fix the steps; omit the flag");
  }
  const ParameterTable table = transformer_definition().table(request.config);
  const std::vector<RankPlan> memory = plan_ranks(request.config, table, training_purpose(request.config));
  std::vector<Plan> plans;
  for (int stage = 0; stage < stages; ++stage) {
    PlanRequest stage_request = request;
    stage_request.config = config_of_stage(request.config, stage);
    plans.push_back(plan_of_steps(stage_request, table, memory));
  }
  Plan plan = plans[static_cast<std::size_t>(longest_stage(training))];
  plan_run(plan, request, plans, table);
  if (stages > 1) plan.stages = std::move(plans);
  if (request.longest_context) plan.longest_context = longest_context(plan.request.config, request.hardware);
  return plan;
}

}  // namespace ringtrain
