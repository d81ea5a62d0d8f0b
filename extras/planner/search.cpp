#include "extras/planner/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/config/read_config.h"
#include "framework/error.h"
#include "framework/profile/progress.h"
#include "layers/model/model_definition.h"
#include "parallel/shared_error.h"

namespace ringtrain {

namespace {

/// For one candidate: a search compares many, and simulates one or two layers of each.
constexpr std::int64_t max_events = 4'000'000;
constexpr std::int64_t largest_micro_batch = 8;
constexpr std::array preferred_layouts{Layout::zigzag, Layout::striped, Layout::contiguous};

/// One thing to choose, with its names in plan.json and for users.
struct Choice {
  const char* name;
  int width;
  std::string (*value)(const Config&);
};
const std::array choices{
    Choice{"mesh", 9, [](const Config& c) { return fmt::format("{}x{}", c.mesh.data, c.mesh.sequence); }},
    Choice{"layout", 10, [](const Config& c) { return std::string(name_of(c.mesh.layout)); }},
    Choice{"recompute", 14, [](const Config& c) { return std::string(name_of(c.training.recompute)); }},
    Choice{"offload", 21, [](const Config& c) { return std::string(name_of(c.training.offload)); }},
    Choice{"host share", 10, [](const Config& c) { return fmt::format("{}", c.optimizer.host_share); }},
    Choice{"shard", 9, [](const Config& c) { return std::string(name_of(c.training.shard)); }},
    Choice{"micro-batch", 11, [](const Config& c) { return std::to_string(c.training.micro_batch_size); }}};

/// Adds the ways to run a config on a mesh.
void add_ways(const Config& on_mesh, Candidates& found) {
  const std::int64_t sequences = on_mesh.training.global_batch_size / on_mesh.mesh.data;
  const bool cuda = on_mesh.training.device == Device::Kind::cuda,
             single = on_mesh.mesh.data * on_mesh.mesh.sequence == 1;
  Config config = on_mesh;
  for (const Recompute recompute : all_recompute_policies) {
    for (const auto& [offload, name] : offload_names) {
      if (offload != Offload::none && !cuda) continue;
      for (const Shard shard : all_shard_policies) {
        config.training.offload = offload;
        config.training.shard = shard;
        if (single && shard != Shard::optimizer && !config.training.store_holds_masters()) continue;  // equivalent
        for (const double share : {0.25, 0.5, 0.75, 1.0}) {
          if (share < 1 && !config.training.offloads(Offload::optimizer)) continue;
          config.optimizer.host_share = share;
          for (std::int64_t size = 1; size <= largest_micro_batch && sequences % size == 0; size *= 2) {
            config.training.recompute = recompute;
            config.training.micro_batch_size = size;
            found.push_back({{}, config});
          }
        }
      }
    }
  }
}

Candidates all_ways(const Config& config, std::int64_t devices) {
  Candidates found;
  for (std::int64_t data = 1; data <= devices; ++data) {
    Config on_mesh = config;
    on_mesh.mesh.data = data;
    on_mesh.mesh.sequence = devices / data;
    if (devices % data != 0 || config.training.global_batch_size % data != 0) continue;
    if (on_mesh.mesh.sequence > std::min<std::int64_t>(RingWork::largest_ring, config.training.seq_len)) continue;
    for (const Layout layout : all_layouts) {
      if (on_mesh.mesh.sequence == 1 && layout != Layout::zigzag) continue;  // equivalent
      on_mesh.mesh.layout = layout;
      add_ways(on_mesh, found);
    }
  }
  return found;
}

/// Sorts by speed, fastest first, and then moves the choice among the ties to the front.
void rank(Candidates& candidates) {
  std::ranges::stable_sort(candidates, {}, [](const Candidate& c) {
    return std::pair(!c.fits, c.fits ? -c.tokens_per_second : c.need.device);
  });
  if (!candidates.front().fits) return;
  const double fastest = candidates.front().tokens_per_second;
  const auto end = std::ranges::find_if(
      candidates, [&](const Candidate& c) { return !c.fits || c.tokens_per_second < (1 - tie) * fastest; });
  const auto key = [](const Candidate& c) {
    return std::pair(std::ranges::find(preferred_layouts, c.config.mesh.layout) - preferred_layouts.begin(),
                     c.need.device + c.need.host);
  };
  const auto choice = std::ranges::min_element(candidates.begin(), end, {}, key);
  std::rotate(candidates.begin(), choice, choice + 1);
}

}  // namespace

Candidates search_plans(const PlanRequest& request, std::int64_t devices, const Log& log) {
  const Candidates ways = all_ways(request.config, devices);
  if (ways.empty()) {
    fail(ExitCode::usage,
         "no mesh of {} devices works: mesh.data must divide training.global_batch_size = {}, and mesh.sequence may be "
         "at most training.seq_len = {} and at most {}; change a key with --set",
         devices, request.config.training.global_batch_size, request.config.training.seq_len, RingWork::largest_ring);
  }
  const ParameterTable table = transformer_definition().table(request.config);
  const double useful_flops = useful_step_flops(request);
  Candidates candidates;
  std::optional<Error> problem;
  for (const Candidate& way : ways) {
    const StepCase step{.config = way.config,
                        .table = table,
                        .hardware = request.hardware,
                        .mean_document = request.mean_document,
                        .max_events = max_events};
    const auto plans = plan_ranks(way.config, table, training_purpose(way.config));
    const auto error = caught([&] { candidates.push_back({plan_step(step, plans, useful_flops, false), way.config}); });
    if (error) problem = error;
  }
  if (problem && std::ranges::none_of(candidates, &Candidate::fits)) throw *problem;
  if (problem && log) log(fmt::format("{} ways are left out: {}", ways.size() - candidates.size(), problem->what()));
  rank(candidates);
  return candidates;
}

std::string search_report(const Candidates& candidates) {
  std::string text = fmt::format(
      "{} ways to run it, of which {} fit; the choice, which has the best layout and the least memory of those within "
      "{:.0f} % of the fastest, and the fastest alternatives:\n  {:<19}",
      candidates.size(), std::ranges::count(candidates, true, &Candidate::fits), 100 * tie, "");
  for (const Choice& choice : choices) text += fmt::format("  {:>{}}", choice.name, choice.width);
  text += fmt::format("  {:>10}  {:>10}  {:>10}  {:>10}  {:>6}\n", "memory", "host/node", "step", "tokens/s", "MFU");
  const auto add = [&](const std::string& label, const Candidate& c) {
    text += fmt::format("  {:<19}", label);
    for (const Choice& choice : choices) text += fmt::format("  {:>{}}", choice.value(c.config), choice.width);
    text += fmt::format("  {:>10}  {:>10}  ", human_bytes(c.need.device), human_bytes(c.need.host));
    text += c.fits ? fmt::format("{:>8.4g} s  {:>10.4g}  {:>4.1f} %\n", c.times.step_seconds, c.tokens_per_second,
                                 100 * c.mfu)
                   : std::string("does not fit\n");
  };
  const Candidate& best = candidates.front();
  add("the choice", best);
  for (const Choice& choice : choices) {
    const auto other = std::ranges::find_if(
        candidates, [&](const Candidate& c) { return choice.value(c.config) != choice.value(best.config); });
    if (other != candidates.end()) add(fmt::format("another {}", choice.name), *other);
  }
  return text;
}

nlohmann::ordered_json search_json(const Candidates& candidates) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Candidate& c : candidates) {
    nlohmann::ordered_json json;
    for (const Choice& choice : choices) json[choice.name] = choice.value(c.config);
    json.update({{"memory_needed", c.need.device}, {"host_needed", c.need.host}, {"fits", c.fits}});
    if (c.fits)
      json.update({{"step_seconds", c.times.step_seconds}, {"tokens_per_second", c.tokens_per_second}, {"mfu", c.mfu}});
    list.push_back(std::move(json));
  }
  return list;
}

std::string set_flags(const Config& config, const Config& chosen) {
  std::string flags;
  for (const ConfigDifference& key : differences(config, chosen)) {
    flags += fmt::format(" --set {}={}", key.key, key.after);
  }
  return flags;
}

}  // namespace ringtrain
