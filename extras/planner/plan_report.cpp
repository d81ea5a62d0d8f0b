#include "extras/planner/plan_report.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/counted.h"
#include "framework/profile/progress.h"
#include "framework/storage/files.h"
#include "framework/storage/strict_json.h"
#include "train/engine/checkpoint_size.h"

namespace ringtrain {

namespace {

using nlohmann::ordered_json;

/// A part of a sum, as plan.json and people call it.
struct Part {
  const char *key, *name;
  double StepFlops::*value;
};
constexpr std::array flops_parts{Part{"projections", "projections", &StepFlops::projections},
                                 Part{"attention_forward", "attention forward", &StepFlops::attention_forward},
                                 Part{"attention_backward", "attention backward", &StepFlops::attention_backward},
                                 Part{"feedforward", "feedforward", &StepFlops::feedforward},
                                 Part{"head", "head and loss", &StepFlops::head},
                                 Part{"adapters", "adapters", &StepFlops::adapters},
                                 Part{"recompute", "recompute", &StepFlops::recompute}};

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.3f} s", seconds);
}

std::string flops_text(double flops) {
  for (const auto& [unit, name] : {std::pair{1e21, "ZFLOP"}, {1e18, "EFLOP"}, {1e15, "PFLOP"}, {1e12, "TFLOP"}}) {
    if (flops >= unit) return fmt::format("{:.2f} {}", flops / unit, name);
  }
  return fmt::format("{:.3f} GFLOP", flops * 1e-9);
}

std::string memory_text(const Plan& plan) {
  std::string text;
  for (const RankPlan& kind : plan.memory) {
    text += fmt::format(
        "memory of {} like rank {}:", kind.ranks.size() == 1 ? "the rank" : fmt::format("{} ranks", kind.ranks.size()),
        kind.ranks.front());
    for (int i = 0; i < tag_count; ++i) {
      const Tag tag = static_cast<Tag>(i);
      text += fmt::format(" {} {},", name_of(tag), human_bytes(static_cast<double>(kind.peak[tag])));
    }
    text += fmt::format(" total {}", human_bytes(static_cast<double>(kind.peak.total)));
    if (kind.host.total > 0)
      text += fmt::format(", host besides {}", human_bytes(static_cast<double>(kind.host.total)));
    text += "\n";
  }
  const Hardware& hardware = plan.request.hardware;
  text += fmt::format("{} of {}, which {} has", human_bytes(plan.need.device), human_bytes(hardware.memory_bytes),
                      hardware.cores > 0 ? "a machine" : "a device");
  if (hardware.node_memory > 0) {
    text +=
        fmt::format(", and {} of {} of a node's host", human_bytes(plan.need.host), human_bytes(hardware.node_memory));
  }
  return text + (plan.fits ? ": it fits\n" : ": it does not fit\n");
}

std::string flops_lines(const Plan& plan) {
  const double total = plan.flops.total();
  std::string text = fmt::format("FLOPs of a step: {}\n", flops_text(total));
  for (const auto& [key, name, value] : flops_parts) {
    const double flops = plan.flops.*value;
    if (flops == 0) continue;  // no adapters, nothing computed again
    text += fmt::format("  {:<20} {:>14}  {:5.1f} %\n", name, flops_text(flops), 100 * flops / total);
  }
  return text;
}

std::string hop_lines(const HopPlan& hop, std::int64_t ranks) {
  if (hop.transfer_seconds == 0) return "no rank's queries see keys of another\n";
  std::string text = fmt::format("a hop, forward: {} to compute, {} to transfer", seconds_text(hop.compute_seconds),
                                 seconds_text(hop.transfer_seconds));
  if (hop.tokens_to_hide > 0) {
    text += fmt::format("; hidden from {:.0f} tokens a rank on, and a rank has {:.0f}\n", std::ceil(hop.tokens_to_hide),
                        hop.tokens);
    text += fmt::format(
        "  the condition: tokens a rank >= r F / (v B), r = {:.3g} bytes a FLOP, F = {:.4g} TFLOP/s of attention,\n"
        "  v = {:.2f} of all pairs visible, B = {:.4g} GB/s: {:.0f} tokens, and {} of latency\n",
        hop.bytes_per_flop, hop.flops_per_second * 1e-12, hop.visible_share, hop.bandwidth * 1e-9,
        hop.bytes_per_flop * hop.flops_per_second / (hop.visible_share * hop.bandwidth), seconds_text(hop.latency));
  } else {
    text += "\n";
  }
  constexpr std::size_t shown = 8;
  text += "  hop   forward: compute    transfer   backward: compute    transfer\n";
  const auto transfer = [](const HopTime& time) {
    return time.transfer_seconds > 0 ? seconds_text(time.transfer_seconds) : std::string("-");
  };
  for (std::size_t i = 0; i < std::min(shown, hop.forward.size()); ++i) {
    text += fmt::format("  {:>3}  {:>17}  {:>10}  {:>18}  {:>10}\n", hop.forward[i].hop,
                        seconds_text(hop.forward[i].compute_seconds), transfer(hop.forward[i]),
                        seconds_text(hop.backward[i].compute_seconds), transfer(hop.backward[i]));
  }
  if (hop.forward.size() > shown) text += fmt::format("  ... of {} hops\n", ranks);
  return text;
}

std::string bytes_text(double keys_and_values, double gradients) {
  return fmt::format("{} of keys and values and {} of their gradients", human_bytes(keys_and_values),
                     human_bytes(gradients));
}

std::string ring_lines(const Plan& plan) {
  const std::int64_t ranks = plan.request.config.mesh.sequence;
  if (ranks == 1) return "";
  std::string text;
  double keys_and_values = 0, gradients = 0;
  for (const MaskPlan& of : plan.masks) {
    keys_and_values += of.key_value_bytes;
    gradients += of.gradient_bytes;
    if (plan.masks.size() > 1) {
      const std::int64_t window = of.layers.mask.window;
      text += fmt::format("{:.0f} of {} layers, {}: {} a step\n", of.layers.forward,
                          plan.request.config.model.num_hidden_layers,
                          window > 0 ? fmt::format("a window of {}", window) : "no window",
                          bytes_text(of.key_value_bytes, of.gradient_bytes));
    }
    text += hop_lines(of.hop, ranks);
  }
  return text + fmt::format("the ring sends {} a step\n", bytes_text(keys_and_values, gradients));
}

std::string time_lines(const Plan& plan) {
  const StepTimes& t = plan.times;
  std::string text = fmt::format("a step takes {}:\n", seconds_text(t.step_seconds));
  for (const auto& [key, name, reason, value] : step_parts) {
    const double seconds = t.*value;
    if (value == &StepTimes::offload_wait && seconds == 0) continue;
    text += fmt::format("  {:<34} {:>11}  {:5.1f} %\n", name, seconds_text(seconds), 100 * seconds / t.step_seconds);
  }
  return text;
}

/// Returns a line for each stage of a config that has several.
std::string stage_lines(const Plan& plan) {
  std::string text;
  for (const StagePlan& stage : plan.stages) {
    text += fmt::format("  steps {} to {}: {} of {} tokens, {} a step, {:.4g} tokens/s, MFU {:.1f} %\n",
                        stage.first_step, stage.last_step, counted(stage.global_batch_size, "sequence"), stage.seq_len,
                        seconds_text(stage.step_seconds), stage.tokens_per_second, 100 * stage.mfu);
  }
  return text.empty() ? text
                      : fmt::format("{} stages; memory is for all of them, and what stands above is of the longest:\n",
                                    plan.stages.size()) +
                            text;
}

std::int64_t checkpoints_at_a_time(const Plan& plan) {
  return most_at_a_time(plan.request.config.checkpoint, std::llround(plan.run.saves) + 1);
}

std::string hours_text(const Plan& plan) {
  const RunTimes& run = plan.run;
  std::string text = fmt::format("{:.0f} steps are {} tokens", run.steps, human_count(plan.tokens));
  const auto add = [&](double count, double seconds, const char* what) {
    if (count > 0) text += fmt::format("; {} of {} each", counted(std::llround(count), what), seconds_text(seconds));
  };
  add(run.evaluations, run.evaluation_seconds, "evaluation");
  add(run.saves, run.save_seconds, "save");
  if (run.last_save_seconds > 0) text += fmt::format("; the last save of {}", seconds_text(run.last_save_seconds));
  text += fmt::format("; a checkpoint takes {}, and {} lie on the disk at a time",
                      human_bytes(static_cast<double>(run.checkpoint_bytes)), checkpoints_at_a_time(plan));
  text += fmt::format("; in all {:.4g} hours, {:.4g} device hours", plan.hours, plan.device_hours);
  return text + "\n";
}

ordered_json memory_json(const RankPlan& kind) {
  ordered_json json{{"ranks", kind.ranks.size()}, {"first_rank", kind.ranks.front()}};
  for (int i = 0; i < tag_count; ++i) json[name_of(static_cast<Tag>(i))] = kind.peak[static_cast<Tag>(i)];
  json["total"] = kind.peak.total;
  json["host"] = kind.host.total;
  return json;
}

ordered_json hop_times_json(const std::vector<HopTime>& hops) {
  ordered_json list = ordered_json::array();
  for (const HopTime& hop : hops) {
    list.push_back(
        {{"hop", hop.hop}, {"compute_seconds", hop.compute_seconds}, {"transfer_seconds", hop.transfer_seconds}});
  }
  return list;
}

ordered_json hop_json(const HopPlan& hop) {
  return {{"compute_seconds", hop.compute_seconds},
          {"transfer_seconds", hop.transfer_seconds},
          {"tokens_to_hide", hop.tokens_to_hide},
          {"tokens", hop.tokens},
          {"flops_per_second", hop.flops_per_second},
          {"bandwidth", hop.bandwidth},
          {"latency", hop.latency},
          {"visible_share", hop.visible_share},
          {"bytes_per_flop", hop.bytes_per_flop},
          {"forward", hop_times_json(hop.forward)},
          {"backward", hop_times_json(hop.backward)}};
}

ordered_json mask_json(const MaskPlan& of) {
  return {{"window", of.layers.mask.window},
          {"layers", static_cast<std::int64_t>(of.layers.forward)},
          {"key_value_bytes", of.key_value_bytes},
          {"gradient_bytes", of.gradient_bytes},
          {"hop", hop_json(of.hop)}};
}

ordered_json stages_json(const std::vector<StagePlan>& stages) {
  ordered_json list = ordered_json::array();
  for (const StagePlan& stage : stages) {
    list.push_back({{"first_step", stage.first_step},
                    {"last_step", stage.last_step},
                    {"seq_len", stage.seq_len},
                    {"global_batch_size", stage.global_batch_size},
                    {"step_seconds", stage.step_seconds},
                    {"tokens_per_second", stage.tokens_per_second},
                    {"mfu", stage.mfu}});
  }
  return list;
}

/// Adds what the whole run takes.
void add_run(const Plan& plan, ordered_json& json) {
  const RunTimes& run = plan.run;
  json["evaluations"] = {{"count", run.evaluations}, {"seconds", run.evaluation_seconds}};
  json["saves"] = {{"count", run.saves},
                   {"seconds", run.save_seconds},
                   {"last_seconds", run.last_save_seconds},
                   {"bytes", run.checkpoint_bytes},
                   {"at_a_time", checkpoints_at_a_time(plan)}};
  json["hours"] = plan.hours;
  json["device_hours"] = plan.device_hours;
}

}  // namespace

std::string plan_report(const Plan& plan) {
  const Config& config = plan.request.config;
  std::string text =
      fmt::format("{}: {} parameters, {} tokens a sequence, {} a step; {} x {} ranks, {}, recompute {}\n", config.name,
                  human_count(static_cast<double>(plan.parameters)), config.training.seq_len,
                  counted(config.training.global_batch_size, "sequence"), config.mesh.data, config.mesh.sequence,
                  name_of(config.mesh.layout), name_of(config.training.recompute));
  text += fmt::format("on {}: {:.4g} TFLOP/s of {} a rank\n", plan.request.hardware.name, plan.rates.peak * 1e-12,
                      name_of(config.training.dtype));
  if (const std::string told = told_rates(plan.request.hardware); !told.empty()) text += told + "\n";
  text += memory_text(plan);
  if (plan.longest_context > 0) {
    const bool limited = plan.longest_context + 2 * config.mesh.sequence > model_limit(config);
    text += fmt::format("longest context that fits on this mesh: {} tokens{}\n", plan.longest_context,
                        limited ? ", the model's own limit (model.max_position_embeddings)" : "");
  }
  text += flops_lines(plan) + ring_lines(plan) + time_lines(plan);
  text +=
      fmt::format("{:.4g} tokens/s; MFU {:.1f} %: {}, of {:.4g} TFLOP/s a rank\n", plan.tokens_per_second,
                  100 * plan.mfu, mfu_formula(trained_parts(config.model, config.training)), plan.rates.peak * 1e-12);
  return text + stage_lines(plan) + (plan.fits ? hours_text(plan) : "");
}

ordered_json plan_json(const Plan& plan) {
  const Config& config = plan.request.config;
  ordered_json json;
  json["kind"] = "plan";
  json["config"] = config.name;
  json["hardware"] = plan.request.hardware.name;
  json["mesh"] = {
      {"data", config.mesh.data}, {"sequence", config.mesh.sequence}, {"layout", name_of(config.mesh.layout)}};
  json["parameters"] = plan.parameters;
  json["memory"] = ordered_json::array();
  for (const RankPlan& kind : plan.memory) json["memory"].push_back(memory_json(kind));
  json["memory_needed"] = plan.need.device;
  json["host_needed"] = plan.need.host;
  json["fits"] = plan.fits;
  json["longest_context"] = plan.longest_context;
  json["flops_per_step"] = plan.flops.total();
  for (const auto& [key, name, value] : flops_parts) json["flops"][key] = plan.flops.*value;
  json["useful_flops"] = plan.useful_flops;
  const StepTimes& t = plan.times;
  json["step_seconds"] = t.step_seconds;
  for (const StepPart& part : step_parts) json["seconds"][part.key] = t.*part.seconds;
  json["simulated_layers"] = t.simulated_layers;
  json["events"] = t.events;
  json["hop"] = hop_json(plan.masks.front().hop);
  json["hop"]["exposed_seconds"] = t.ring_wait;
  json["ring"] = ordered_json::array();
  for (const MaskPlan& of : plan.masks) json["ring"].push_back(mask_json(of));
  json["tokens_per_second"] = plan.tokens_per_second;
  json["mfu"] = plan.mfu;
  if (!plan.stages.empty()) json["stages"] = stages_json(plan.stages);
  json["peak_flops"] = plan.rates.peak;
  json["tokens"] = plan.tokens;
  json["steps"] = plan.run.steps;
  if (plan.fits) add_run(plan, json);  // what cannot run takes no hours
  return json;
}

ordered_json search_json(const SearchResult& result) {
  ordered_json list = ordered_json::array();
  for (const Candidate& c : result.candidates) {
    ordered_json json{{"mesh", fmt::format("{}x{}", c.mesh.data, c.mesh.sequence)},
                      {"layout", name_of(c.mesh.layout)},
                      {"recompute", name_of(c.recompute)},
                      {"offload", name_of(c.offload)},
                      {"shard", name_of(c.shard)},
                      {"global_batch_size", c.global_batch_size},
                      {"micro_batch_size", c.micro_batch_size},
                      {"memory_needed", c.need.device},
                      {"host_needed", c.need.host},
                      {"fits", c.fits}};
    if (c.fits) {
      json["step_seconds"] = c.step_seconds;
      json["tokens_per_second"] = c.tokens_per_second;
      json["mfu"] = c.mfu;
    }
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace ringtrain
