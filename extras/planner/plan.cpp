#include "extras/planner/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>

#include "framework/config/training_stages.h"
#include "framework/counted.h"
#include "framework/error.h"
#include "layers/model_parameters.h"
#include "layers/model_spec.h"

namespace ringtrain {

namespace {

constexpr int max_hops = 64;  // that a plan lists

/// Throws Error(usage) for a mesh that the batch or the length does not divide into.
void check_mesh(const Config& config) {
  const std::int64_t per_step = config.mesh.data * config.training.micro_batch_size;
  if (config.training.global_batch_size % per_step != 0) {
    fail(
        ExitCode::usage,
        "training.global_batch_size = {} is no multiple of mesh.data * training.micro_batch_size = {} * {}: change one "
        "with --set",
        config.training.global_batch_size, config.mesh.data, config.training.micro_batch_size);
  }
  if (config.mesh.sequence > config.training.seq_len) {
    fail(ExitCode::usage, "mesh.sequence = {} is more than training.seq_len = {}: some ranks would hold no token",
         config.mesh.sequence, config.training.seq_len);
  }
}

std::vector<HopTime> hop_times(const RingWork& work, const PassCosts& costs, const LinkLevel& link) {
  const int N = work.ranks(), hops = std::min(N, max_hops);
  std::vector<HopTime> times;
  for (int hop = 0; hop < hops; ++hop) {
    HopTime time{.hop = hop};
    for (int rank = 0; rank < N; ++rank) {
      const auto step = work.step(rank, hop);
      if (!step) continue;
      const double seconds =
          costs.visit_seconds + static_cast<double>(work.pairs(rank, step->owner)) * costs.pair_seconds;
      time.compute_seconds = std::max(time.compute_seconds, seconds);
    }
    std::int64_t tokens = 0;  // the most that a rank receives for the next hop
    for (int rank = 0; hop + 1 < N && rank < N; ++rank) {
      if (const auto next = work.step(rank, hop + 1)) {
        tokens = std::max(tokens, work.travelling_tokens(next->owner, rank));
      }
    }
    if (tokens > 0) {
      const double bytes = (costs.key_value_bytes + costs.gradient_bytes) * static_cast<double>(tokens);
      time.transfer_seconds = link.latency + bytes / link.bandwidth;
    }
    times.push_back(time);
  }
  return times;
}

HopPlan hop_plan(const Config& config, const Hardware& hardware, const RankRates& rates, const RingWork& work) {
  HopPlan plan;
  const int N = work.ranks();
  plan.tokens = static_cast<double>(work.tokens(0));
  if (N == 1) return plan;
  const LayerWork layer = layer_work(config.model, config.training);
  const PassCosts forward = pass_costs(config, rates, layer, false), backward = pass_costs(config, rates, layer, true);
  const LinkLevel link = hardware.slowest_of_ring(N);
  plan.forward = hop_times(work, forward, link);
  plan.backward = hop_times(work, backward, link);
  double pairs = 0, blocks = 0, travelled = 0;
  for (int hop = 1; hop < std::min(N, max_hops); ++hop) {
    for (int rank = 0; rank < N; ++rank) {
      const auto step = work.step(rank, hop);
      if (!step) continue;
      pairs += static_cast<double>(work.pairs(rank, step->owner));
      travelled += static_cast<double>(work.travelling_tokens(step->owner, rank));
      ++blocks;
    }
  }
  if (blocks == 0) return plan;
  plan.compute_seconds = forward.visit_seconds + pairs / blocks * forward.pair_seconds;
  plan.transfer_seconds = link.latency + forward.key_value_bytes * (travelled / blocks) / link.bandwidth;
  const double pair_flops = 4 * static_cast<double>(config.model.num_attention_heads * config.model.head_dim);
  plan.visible_share = pairs / blocks / (plan.tokens * plan.tokens);
  plan.flops_per_second = pair_flops / forward.pair_seconds;
  plan.bytes_per_flop = forward.key_value_bytes / pair_flops;
  plan.bandwidth = link.bandwidth;
  plan.latency = link.latency;
  if (work.mask().window > 0) return plan;
  plan.tokens_to_hide =
      tokens_to_hide(forward.pair_seconds, plan.visible_share, forward.key_value_bytes / link.bandwidth, link.latency);
  return plan;
}

/// Returns the rings of layers whose masks differ; the widest mask comes first, for which the ring works hardest.
std::vector<MaskPlan> mask_plans(const PlanRequest& request, const RankRates& rates) {
  const Config& config = request.config;
  const LayerWork layer = layer_work(config.model, config.training);
  const double passes = static_cast<double>(config.training.global_batch_size / config.training.micro_batch_size);
  std::vector<MaskPlan> plans;
  for (const MaskCount& layers : mask_counts(config.model, config.training)) {
    const RingWork work = ring_work(config, layers.mask, request.mean_document);
    const RingTokens sent = work.sent();
    const PassCosts costs = pass_costs(config, rates, layer, /*backward=*/true);
    const double visits = layers.forward + layers.backward * (layer.attention_again ? 2 : 1);
    plans.push_back({.layers = layers,
                     .hop = hop_plan(config, request.hardware, rates, work),
                     .key_value_bytes = passes * visits * costs.key_value_bytes * sent.keys,
                     .gradient_bytes = passes * layers.backward * costs.gradient_bytes * sent.gradients});
  }
  const auto window = [](const MaskPlan& plan) {
    return plan.layers.mask.window > 0 ? plan.layers.mask.window : INT64_MAX;
  };
  std::ranges::stable_sort(plans, std::greater{}, window);
  return plans;
}

/// Returns the visible pairs of a sequence over the layers, packed documents counted.
LayerPairs sequence_pairs(const PlanRequest& request) {
  Config one = request.config;
  one.mesh.sequence = one.training.micro_batch_size = 1;
  return layer_pairs(mask_counts(one.model, one.training), [&](const AttentionMask& mask) {
    return static_cast<double>(ring_work(one, mask, request.mean_document).all_pairs());
  });
}

/// request and table must outlive it.
StepCase step_case(const PlanRequest& request, const ParameterTable& table, const std::vector<RankPlan>& memory) {
  return {.config = request.config,
          .table = table,
          .hardware = request.hardware,
          .mean_document = request.mean_document,
          .offload = offloaded_bytes(request.config, memory),
          .tell = request.tell};
}

}  // namespace

double useful_step_flops(const PlanRequest& request) {
  const auto batch = static_cast<double>(request.config.training.global_batch_size);
  const LayerPairs pairs = sequence_pairs(request);
  return useful_flops(request.config.model, request.config.training)
      .of(batch * static_cast<double>(request.config.training.seq_len),
          {.forward = batch * pairs.forward, .backward = batch * pairs.backward});
}

double tokens_to_hide(double seconds_per_pair, double visible_share, double seconds_per_token, double latency) {
  const double a = seconds_per_pair * visible_share, b = seconds_per_token;
  return a > 0 ? (b + std::sqrt(b * b + 4 * a * latency)) / (2 * a) : 0;
}

double MemoryNeed::of_a_rank(const Hardware& hardware, std::int64_t world) const {
  const std::int64_t sharing = hardware.cores > 0 ? hardware.ranks_of_machine(world) : 1;
  return device / static_cast<double>(sharing) + host / static_cast<double>(hardware.ranks_of_node(world));
}

bool MemoryNeed::fits(const Hardware& hardware) const {
  return device <= hardware.memory_bytes && (hardware.node_memory == 0 || host <= hardware.node_memory);
}

MemoryNeed memory_need(const Config& config, const Hardware& hardware, const ModelDefinition& model) {
  return memory_need(config, hardware, plan_ranks(config, model.table(config), training_purpose(config), model));
}

MemoryNeed memory_need(const Config& config, const Hardware& hardware, const std::vector<RankPlan>& plans) {
  const std::int64_t world = config.mesh.data * config.mesh.sequence;
  double largest = 0, all = 0, ranks = 0, host = 0;
  for (const RankPlan& plan : plans) {
    const auto bytes = static_cast<double>(plan.peak.total);
    largest = std::max(largest, bytes);
    host = std::max(host, static_cast<double>(plan.host.total));
    all += bytes * static_cast<double>(plan.ranks.size());
    ranks += static_cast<double>(plan.ranks.size());
  }
  host *= static_cast<double>(hardware.ranks_of_node(world));
  if (hardware.cores == 0) return {largest, host};
  const auto here = static_cast<double>(hardware.ranks_of_machine(world));
  return {here == ranks ? all : largest * here, host};
}

OffloadedBytes offloaded_bytes(const Config& config, const std::vector<RankPlan>& plans) {
  if (config.training.offload == Offload::none) return {};
  const MemoryUse& host = plans.front().host;
  const auto layers = static_cast<double>(trained_parts(config.model, config.training).layers);
  return {.of_a_layer = layers > 0 ? static_cast<double>(host[Tag::activations]) / layers : 0,
          .of_update = 2 * static_cast<double>(host[Tag::optimizer])};
}

std::int64_t model_limit(const Config& config) {
  const ModelSpec spec = model_spec(config.model);
  const bool meant = spec.positions == Positions::learned || config.model.rope_scaling.type == RopeType::none;
  const std::int64_t limit = meant ? config.model.max_position_embeddings : 0;
  return limit >= config.training.seq_len ? limit : std::int64_t{1} << 30;
}

std::int64_t longest_context(const Config& config, const Hardware& hardware, const ModelDefinition& model) {
  const std::int64_t unit = 2 * config.mesh.sequence, most = model_limit(config) / unit;
  const auto fits = [&](std::int64_t units) {
    Config other = config;
    other.training.seq_len = units * unit;
    return memory_need(other, hardware, model).fits(hardware);
  };
  if (most < 1 || !fits(1)) return 0;
  std::int64_t low = 1, high = 2;  // low fits
  while (high <= most && fits(high)) {
    low = high;
    high *= 2;
  }
  high = std::min(high, most + 1);
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low * unit;
}

namespace {

/// Returns the plan of one stage's steps; memory: of the whole config's ranks. Nothing of the run.
Plan plan_of_steps(const PlanRequest& request, const ParameterTable& table, std::vector<RankPlan> memory) {
  const Config& config = request.config;
  check_mesh(config);
  Plan plan;
  plan.request = request;
  plan.parameters = table.count();
  plan.rates = rank_rates(request.hardware, config, request.mean_document);
  plan.memory = std::move(memory);
  plan.need = memory_need(config, request.hardware, plan.memory);
  plan.fits = plan.need.fits(request.hardware);
  plan.flops = step_flops(config.model, config.training, sequence_pairs(request));
  plan.step_tokens = static_cast<double>(config.training.global_batch_size * config.training.seq_len);
  plan.useful_flops = useful_step_flops(request);
  plan.times = simulate_step(step_case(request, table, plan.memory));
  plan.masks = mask_plans(request, plan.rates);
  plan.tokens_per_second = plan.step_tokens / plan.times.step_seconds;
  plan.mfu = plan.useful_flops / plan.times.step_seconds /
             (plan.rates.peak * static_cast<double>(config.mesh.data * config.mesh.sequence));
  return plan;
}

/// Returns the plan of the longest stage, with all stages beside it.
Plan plan_of_stages(const PlanRequest& request, const ParameterTable& table, const std::vector<RankPlan>& memory) {
  const TrainingConfig& training = request.config.training;
  if (request.tokens > 0 && !training.stages.empty()) {
    fail(ExitCode::usage, "--tokens: the config has {} stages, whose steps say how long it trains; leave it out",
         stage_count(training));
  }
  Plan plan;
  std::vector<StagePlan> stages;
  for (int stage = 0; stage < stage_count(training); ++stage) {
    PlanRequest one = request;
    one.config = config_of_stage(request.config, stage);
    Plan of_stage = plan_of_steps(one, table, memory);
    stages.push_back({.first_step = first_step_of(training, stage),
                      .last_step = last_step_of(training, stage),
                      .seq_len = one.config.training.seq_len,
                      .global_batch_size = one.config.training.global_batch_size,
                      .step_seconds = of_stage.times.step_seconds,
                      .tokens_per_second = of_stage.tokens_per_second,
                      .mfu = of_stage.mfu});
    if (stage == longest_stage(training)) plan = std::move(of_stage);
  }
  if (stages.size() > 1) plan.stages = std::move(stages);
  return plan;
}

}  // namespace

Plan make_plan(const PlanRequest& request) {
  const Config& config = request.config;
  for (const Config& stage : configs_of_stages(config)) check_mesh(stage);
  check_definition(request.model);
  const ParameterTable table = request.model.table(config);
  Plan plan = plan_of_stages(request, table, plan_ranks(config, table, training_purpose(config), request.model));
  const double steps =
      request.tokens > 0 ? std::ceil(request.tokens / plan.step_tokens) : static_cast<double>(config.training.steps);
  double seconds = steps * plan.times.step_seconds;
  plan.tokens = steps * plan.step_tokens;
  if (!plan.stages.empty()) {
    seconds = 0;
    for (const StagePlan& stage : plan.stages) {
      seconds += static_cast<double>(stage.last_step - stage.first_step + 1) * stage.step_seconds;
    }
    plan.tokens = static_cast<double>(tokens_done(config.training, config.training.steps));
  }
  plan.run = run_times(step_case(plan.request, table, plan.memory), steps, seconds / steps);
  plan.hours = plan.run.seconds() / 3600;
  plan.device_hours = plan.hours * static_cast<double>(config.mesh.data * config.mesh.sequence);
  if (request.longest_context)
    plan.longest_context = longest_context(plan.request.config, request.hardware, request.model);
  return plan;
}

}  // namespace ringtrain
