// Steps of the 1B model at growing contexts on one rank. If a step of all layers would take too long, steps of one and
// two layers are timed and the remaining layers are extrapolated; the row says so. The cost of a layer is what the
// second one adds.
//
// A rung's configuration follows the plan, which is made for all layers regardless of what is timed: the first of
// `policies` that fits the card and the host, from the fastest to the smallest.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "bench/gpu/groups.h"
#include "bench/gpu/synthetic_rank.h"
#include "bench/gpu/timing.h"
#include "framework/cuda/check.h"
#include "framework/cuda/memory.h"
#include "framework/system/system_memory.h"
#include "layers/model/step_work.h"
#include "layers/model_parameters.h"
#include "parallel/launch/launch.h"
#include "train/engine/memory_check.h"

namespace ringtrain::bench {

namespace {

/// Dense bfloat16 peak of an H200 (and an H100), relative to which utilization is given.
constexpr double peak_flops = 989e12;
/// Reserved for the CUDA libraries' own code.
constexpr std::int64_t library_bytes = std::int64_t{256} << 20;

struct Policy {
  Recompute recompute;
  Offload offload;
  const char* name;
};
constexpr Policy policies[] = {
    {Recompute::none, Offload::none, "recompute none"},
    {Recompute::keep_attention, Offload::none, "recompute keep_attention"},
    {Recompute::keep_attention, Offload::activations, "recompute keep_attention, offload activations"},
    {Recompute::keep_attention, Offload::activations_and_optimizer,
     "recompute keep_attention, offload activations+optimizer"},
    {Recompute::full, Offload::none, "recompute full"},
    {Recompute::full, Offload::activations, "recompute full, offload activations"},
    {Recompute::full, Offload::activations_and_optimizer, "recompute full, offload activations+optimizer"},
};

Json by_tag(const MemoryUse& use) {
  Json json;
  for (int i = 0; i < tag_count; ++i) {
    if (const Tag tag = static_cast<Tag>(i); use[tag] > 0) json[name_of(tag)] = use[tag];
  }
  json["total"] = use.total;
  return json;
}

Config with_layers(const Config& config, std::int64_t layers) {
  Config other = config;
  other.model.num_hidden_layers = layers;
  return other;
}

struct Choice {
  Config config;
  const char* policy = nullptr;
  bool fits = false;
  RankPlan plan;
  std::string report;
};

/// Returns the first policy whose plan fits, or the last.
Choice choose_policy(const ModelConfig& model, std::int64_t context, std::int64_t card, std::int64_t host) {
  Choice choice;
  for (const Policy& policy : policies) {
    choice.config = synthetic_config(model, context);
    choice.config.training.recompute = policy.recompute;
    choice.config.training.offload = policy.offload;
    choice.policy = policy.name;
    const std::vector<RankPlan> plans =
        plan_ranks(choice.config, make_parameter_table(model), training_purpose(choice.config));
    choice.plan = plans[0];
    choice.report = memory_report(plans);
    choice.fits = static_cast<std::int64_t>(choice.plan.peak.total) <= card &&
                  static_cast<std::int64_t>(choice.plan.host.total) <= host;
    if (choice.fits) break;
  }
  return choice;
}

struct Timed {
  double seconds = 0;
  int repetitions = 0;
  MemoryUse peak, host;
  std::int64_t card_bytes = 0;  // allocated on the card at the end
  bool finite = true;
};

/// Times steps, at most `most`, after one that does not count; only one if a step is expected to take longer than a few
/// seconds.
Timed time_steps(const Config& config, double expected_seconds, int most) {
  Timed timed;
  const ParameterTable table = make_parameter_table(config.model);
  const bool once = expected_seconds > 4;
  const int repetitions = once ? 1 : std::clamp(static_cast<int>(10 / std::max(expected_seconds, 1e-3)), 1, most);
  launch_threads({.ranks = 1}, [&](Communicator& world) {
    ThreadPool pool(1);
    SyntheticRank rank(config, table, pool, world);
    const auto step = [&] { timed.finite = std::isfinite(rank.step()) && timed.finite; };
    if (!once) step();
    std::vector<double> seconds;
    for (int i = 0; i < repetitions; ++i) seconds.push_back(wall_seconds(rank.state().stream, step));
    timed.seconds = summary(seconds).median;
    timed.peak = rank.state().allocator.peak();
    timed.host = rank.state().allocator.host().peak();
    std::size_t free = 0, total = 0;
    cuda::check(cudaMemGetInfo(&free, &total), "asking for the GPU's free memory");
    timed.card_bytes = static_cast<std::int64_t>(total - free);
  });
  timed.repetitions = repetitions;
  return timed;
}

/// What is known about a context.
struct Rung {
  std::int64_t context;
  std::optional<double> layer, rest;  // seconds of one layer, and of all but the layers
};

/// Returns a T + b T^2 at `context`, through the layer times of the last two rungs that have one.
std::optional<double> fitted_layer(const std::vector<Rung>& rungs, std::int64_t context) {
  std::vector<Rung> known;
  for (const Rung& rung : rungs) {
    if (rung.layer) known.push_back(rung);
  }
  if (known.size() < 2) return std::nullopt;
  const Rung &one = known[known.size() - 2], &two = known.back();
  const auto T1 = static_cast<double>(one.context), T2 = static_cast<double>(two.context);
  const double b = (*two.layer / T2 - *one.layer / T1) / (T2 - T1), a = *one.layer / T1 - b * T1;
  const auto T = static_cast<double>(context);
  return a * T + b * T * T;
}

class Scaling {
 public:
  Scaling(Results& results, const Settings& settings)
      : results_(results),
        settings_(settings),
        model_(billion_model(settings.tiny)),
        card_(static_cast<std::int64_t>(cuda::free_bytes(0)) - (settings.tiny ? 0 : library_bytes)),
        host_(available_memory()) {}

  void climb(std::int64_t context) {
    const Choice choice = choose_policy(model_, context, card_, host_);
    const std::string name = fmt::format("{}", context);
    results_.attach("scaling", name,
                    {{"policy", choice.policy},
                     {"fits", choice.fits},
                     {"card_bytes_free", card_},
                     {"host_bytes_free", host_},
                     {"planned", by_tag(choice.plan.peak)},
                     {"planned_on_host", by_tag(choice.plan.host)},
                     {"plan", choice.report}});
    for (int i = 0; i < tag_count; ++i) {
      const Tag tag = static_cast<Tag>(i);
      if (choice.plan.peak[tag] > 0) add_bytes(context, std::string("planned ") + name_of(tag), choice.plan.peak[tag]);
    }
    add_bytes(context, "planned in all", choice.plan.peak.total, choice.policy);
    add_bytes(context, "planned in host memory", choice.plan.host.total);
    results_.add({.group = "scaling",
                  .name = "plan fits",
                  .value = choice.fits ? 1.0 : 0.0,
                  .unit = "",
                  .parameters = {{"context", context}},
                  .note = fmt::format("{} bytes free on the card, {} in host memory", card_, host_)});
    time_rung(choice, context);
  }

 private:
  void add_bytes(std::int64_t context, const std::string& name, std::size_t bytes, const std::string& note = "") {
    results_.add({.group = "scaling",
                  .name = name,
                  .value = static_cast<double>(bytes) * 1e-9,
                  .unit = "GB",
                  .parameters = {{"context", context}},
                  .note = note});
  }

  /// Returns the expected seconds of a step of this many layers at the rate of the previous rung.
  double expected(const Choice& choice, std::int64_t layers) const {
    const Config config = with_layers(choice.config, layers);
    return model_flops(config) / rate_;
  }

  /// Times steps of this many layers, if they are expected to end in time; records the observed memory.
  std::optional<double> seconds_of(const Choice& choice, std::int64_t context, std::int64_t layers, double longest) {
    const double seconds = expected(choice, layers);
    if (seconds > longest) return std::nullopt;
    const Config config = with_layers(choice.config, layers);
    const Timed timed = time_steps(config, seconds, settings_.tiny ? 1 : 10);
    rate_ = model_flops(config) / timed.seconds;
    results_.check("scaling", fmt::format("context {}, {} layers: the loss is not finite", context, layers),
                   timed.finite);
    results_.add({.group = "scaling",
                  .name = "timed step",
                  .value = timed.seconds,
                  .unit = "s",
                  .parameters = {{"context", context}, {"layers", layers}},
                  .note = fmt::format("median of {}", timed.repetitions)});
    results_.attach(
        "scaling measured", fmt::format("{} tokens, {} layers", context, layers),
        {{"peak", by_tag(timed.peak)}, {"peak_on_host", by_tag(timed.host)}, {"card_bytes_in_use", timed.card_bytes}});
    add_peak(context, layers, timed);
    return timed.seconds;
  }

  void add_peak(std::int64_t context, std::int64_t layers, const Timed& timed) {
    const auto add = [&](const std::string& name, std::int64_t bytes) {
      results_.add({.group = "scaling",
                    .name = name,
                    .value = static_cast<double>(bytes) * 1e-9,
                    .unit = "GB",
                    .parameters = {{"context", context}, {"layers", layers}},
                    .note = ""});
    };
    for (int i = 0; i < tag_count; ++i) {
      const Tag tag = static_cast<Tag>(i);
      if (timed.peak[tag] > 0) add(std::string("peak ") + name_of(tag), static_cast<std::int64_t>(timed.peak[tag]));
    }
    add("peak in all", static_cast<std::int64_t>(timed.peak.total));
    add("card memory in use", timed.card_bytes);
  }

  void time_rung(const Choice& choice, std::int64_t context) {
    const std::int64_t L = model_.num_hidden_layers;
    const auto place = rungs_.size();
    // The emulator's sizes exercise every path; otherwise the clock decides.
    const double longest = settings_.tiny ? 1e30 : settings_.longest_step;
    const bool all_allowed = choice.fits && (!settings_.tiny || place == 0);
    const bool two_allowed = !settings_.tiny || place < 2, one_allowed = !settings_.tiny || place < 3;
    Rung rung{context, {}, {}};
    const auto one = one_allowed ? seconds_of(choice, context, 1, longest) : std::nullopt;
    const auto two = one && two_allowed ? seconds_of(choice, context, 2, longest) : std::nullopt;
    std::string how;
    if (two) {
      rung.layer = *two - *one;
      rung.rest = *one - *rung.layer;
      how = "extrapolated from steps of 1 and 2 layers";
    } else if (one && !rungs_.empty() && rungs_.back().rest) {
      const Rung& before = rungs_.back();
      rung.rest = *before.rest * static_cast<double>(context) / static_cast<double>(before.context);
      rung.layer = *one - *rung.rest;
      how = fmt::format("extrapolated from a step of 1 layer, all else from {} tokens", before.context);
    } else if (!rungs_.empty() && rungs_.back().rest) {
      const Rung& before = rungs_.back();
      rung.rest = *before.rest * static_cast<double>(context) / static_cast<double>(before.context);
      if (const auto layer = fitted_layer(rungs_, context)) rung.layer = *layer;
      how = "extrapolated from shorter contexts: a layer as a T + b T^2, all else as c T";
    }
    // A whole step, if it does not take much longer than the two layers did.
    const auto all =
        all_allowed ? seconds_of(choice, context, L, settings_.tiny ? longest : longest / 3) : std::nullopt;
    if (all) {
      report(choice, context, *all, fmt::format("all {} layers timed", L));
    } else if (rung.layer && rung.rest) {
      report(choice, context, *rung.rest + static_cast<double>(L) * *rung.layer, how);
    } else {
      results_.failed("scaling",
                      fmt::format("context {}: no timing was made from which a step's time follows", context));
    }
    rungs_.push_back(rung);
  }

  void report(const Choice& choice, std::int64_t context, double seconds, const std::string& how) {
    const auto add = [&](const char* name, double value, const char* unit, const std::string& note) {
      results_.add({.group = "scaling",
                    .name = name,
                    .value = value,
                    .unit = unit,
                    .parameters = {{"context", context}},
                    .note = note});
    };
    add("step", seconds, "s", how);
    add("tokens", static_cast<double>(context) / seconds, "/s", how);
    const TrainedParts parts = trained_parts(model_, choice.config.training);
    add("MFU", 100 * model_flops(choice.config) / seconds / peak_flops, "%",
        fmt::format("{}, of {:.0f} TFLOP/s dense; {}, L = {}, C = {}; {}", mfu_formula(parts), peak_flops * 1e-12,
                    mfu_numbers(parts), model_.num_hidden_layers, model_.num_attention_heads * model_.head_dim, how));
  }

  Results& results_;
  const Settings& settings_;
  const ModelConfig model_;
  const std::int64_t card_, host_;
  std::vector<Rung> rungs_;
  double rate_ = 250e12;  // FLOP/s: a cautious guess, then the rate of the latest steps
};

}  // namespace

void scaling_group(Results& results, const Settings& settings) {
  Scaling scaling(results, settings);
  std::vector<std::int64_t> contexts{8192, 65536, 262144, 1048576, 2097152};
  if (settings.quick) contexts = {8192, 65536};
  if (settings.tiny) contexts = {32, 48, 64, 80};
  for (const std::int64_t context : contexts) scaling.climb(context);
}

}  // namespace ringtrain::bench
