#include "extras/planner/plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/counted.h"
#include "framework/profile/progress.h"
#include "train/engine/checkpoint_size.h"

namespace ringtrain {

namespace {

using nlohmann::ordered_json;

constexpr std::array<SumPart<StepFlops>, 7> flops_parts{
    {{"projections", "projections", &StepFlops::projections},
     {"attention_forward", "attention forward", &StepFlops::attention_forward},
     {"attention_backward", "attention backward", &StepFlops::attention_backward},
     {"feedforward", "feedforward", &StepFlops::feedforward},
     {"head", "head and loss", &StepFlops::head},
     {"adapters", "adapters", &StepFlops::adapters},
     {"recompute", "recompute", &StepFlops::recompute}}};

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

/// Returns a line for each part that is not 0: there may be no adapters, or nothing to recompute.
template <class Parts, class Sum>
std::string part_lines(const Parts& parts, const Sum& sum, double total, std::string (*text)(double)) {
  std::string lines;
  for (const auto& [key, name, value] : parts) {
    const double part = sum.*value;
    if (part > 0) lines += fmt::format("  {:<34} {:>14}  {:5.1f} %\n", name, text(part), 100 * part / total);
  }
  return lines;
}

std::string memory_lines(const Plan& plan) {
  std::string text;
  for (const RankPlan& kind : plan.memory) {
    text += fmt::format("memory of {} like rank {}:", counted(std::ssize(kind.ranks), "rank"), kind.ranks.front());
    for (int i = 0; i < tag_count; ++i) {
      const Tag tag = static_cast<Tag>(i);
      text += fmt::format(" {} {},", name_of(tag), human_bytes(static_cast<double>(kind.peak[tag])));
    }
    text += fmt::format(" total {}", human_bytes(static_cast<double>(kind.peak.total)));
    if (kind.host.total > 0)
      text += fmt::format(", and {} of host memory", human_bytes(static_cast<double>(kind.host.total)));
    text += "\n";
  }
  return text + memory_text(plan.need, plan.request.hardware) + (plan.fits ? ": it fits\n" : ": it does not fit\n");
}

std::string length_lines(const Plan& plan) {
  const std::int64_t made_for = plan.request.made_for, longest = plan.longest_context;
  std::string text;
  if (longest > 0) text += fmt::format("longest context that fits on this mesh: {} tokens\n", longest);
  if (made_for > 0 && std::max(longest, plan.request.config.training.seq_len) > made_for) {
    text += fmt::format(
        "caution: beyond the {} tokens that the model was made for, its rotary positions are not scaled; set "
        "model.rope_scaling (type yarn, factor, original_max_position_embeddings) or model.rope_theta\n",
        made_for);
  }
  return text;
}

std::string flops_lines(const Plan& plan) {
  const double total = plan.flops.total();
  return fmt::format("FLOPs of a step: {}\n", flops_text(total)) +
         part_lines(flops_parts, plan.flops, total, flops_text);
}

std::string ring_lines(const Plan& plan) {
  const HopPlan& hop = plan.hop;
  if (plan.request.config.mesh.sequence == 1) return "";
  if (hop.transfer_seconds == 0) return "no rank's queries attend to keys of another rank\n";
  std::string text = fmt::format("a forward hop: {} to compute, {} to transfer", seconds_text(hop.compute_seconds),
                                 seconds_text(hop.transfer_seconds));
  if (hop.tokens_to_hide > 0) {
    text += fmt::format("; computing hides the transfer from {:.0f} tokens per rank on, and a rank has {:.0f}",
                        std::ceil(hop.tokens_to_hide), hop.tokens);
  }
  return text + fmt::format("\nin each step the ring sends {} of keys and values, and {} of their gradients\n",
                            human_bytes(plan.key_value_bytes), human_bytes(plan.gradient_bytes));
}

std::string rate_text(double tokens_per_second) {
  return fmt::format(fmt::runtime(tokens_per_second < 1e4 ? "{:.4g} tokens/s" : "{:.0f} tokens/s"), tokens_per_second);
}

std::string time_lines(const Plan& plan) {
  const StepTimes& t = plan.times;
  return fmt::format("a step takes {}:\n", seconds_text(t.step_seconds)) +
         part_lines(step_parts, t, t.step_seconds, seconds_text) +
         fmt::format("{}; MFU {:.1f} %: {}, of {:.4g} TFLOP/s per rank\n", rate_text(plan.tokens_per_second),
                     100 * plan.mfu,
                     mfu_formula(trained_parts(plan.request.config.model, plan.request.config.training)),
                     plan.rates.peak * 1e-12);
}

/// Returns a line for each stage of a config that has several.
std::string stage_lines(const Plan& plan) {
  std::string text;
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const Plan& stage = plan.stages[i];
    const TrainingConfig& training = stage.request.config.training;
    text += fmt::format("  stage {}: {} of {} tokens, {} per step, {}, MFU {:.1f} %\n", i + 1,
                        counted(training.global_batch_size, "sequence"), training.seq_len,
                        seconds_text(stage.times.step_seconds), rate_text(stage.tokens_per_second), 100 * stage.mfu);
  }
  return text.empty() ? text : "memory covers all stages; the step above is of the longest sequences:\n" + text;
}

std::string hours_text(const Plan& plan) {
  std::string text = fmt::format("{:.0f} steps are {} tokens", plan.steps, human_count(plan.tokens));
  if (plan.evaluations > 0) {
    text += fmt::format("; {} of about {} each", counted(std::llround(plan.evaluations), "evaluation"),
                        seconds_text(plan.evaluation_seconds));
  }
  const CheckpointConfig& checkpoint = plan.request.config.checkpoint;
  const std::int64_t saves = std::max<std::int64_t>(1, saves_to_come(checkpoint, 0, std::llround(plan.steps)));
  return text +
         fmt::format(
             "; a checkpoint takes {}, and the disk has {} at a time; {:.4g} hours in total, {:.4g} device hours\n",
             human_bytes(static_cast<double>(plan.checkpoint_bytes)), most_at_a_time(checkpoint, saves), plan.hours,
             plan.device_hours);
}

ordered_json memory_json(const RankPlan& kind) {
  ordered_json json{{"ranks", kind.ranks.size()}, {"first_rank", kind.ranks.front()}};
  for (int i = 0; i < tag_count; ++i) json[name_of(static_cast<Tag>(i))] = kind.peak[static_cast<Tag>(i)];
  json["total"] = kind.peak.total;
  json["host"] = kind.host.total;
  return json;
}

/// Returns the names of supported hardware files with enough memory for the config.
std::vector<std::string> roomy_hardware(const Config& config, bool cores) {
  std::vector<std::string> names;
  for (const auto& [name, path] : hardware_files()) {
    const Hardware other = read_hardware(path);
    if ((other.cores > 0) != cores) continue;
    if (other.peak(config.training.dtype) > 0 && memory_need(config, other).fits(other)) names.push_back(name);
  }
  return names;
}

}  // namespace

std::string memory_text(const MemoryNeed& need, const Hardware& hardware) {
  std::string text = fmt::format("needs {} of memory, and {} can be used on {}", human_bytes(need.device),
                                 human_bytes(usable_bytes(hardware)), hardware.cores > 0 ? "a machine" : "a device");
  if (hardware.node_memory > 0) {
    text += fmt::format("; needs {} of host memory, and a node has {}", human_bytes(need.host),
                        human_bytes(hardware.node_memory));
  }
  return text;
}

std::string plan_report(const Plan& plan) {
  const Config& config = plan.request.config;
  const Hardware& hardware = plan.request.hardware;
  return fmt::format("{}: {} parameters, {} tokens per sequence, {} per step; {} x {} ranks, {}, recompute {}\n",
                     config.name, human_count(static_cast<double>(plan.parameters)), config.training.seq_len,
                     counted(config.training.global_batch_size, "sequence"), config.mesh.data, config.mesh.sequence,
                     name_of(config.mesh.layout), name_of(config.training.recompute)) +
         fmt::format("on {}: {:.4g} TFLOP/s of {} per rank\n", hardware.name, plan.rates.peak * 1e-12,
                     name_of(config.training.dtype)) +
         caveat(hardware, config.mesh.data * config.mesh.sequence) + memory_lines(plan) + length_lines(plan) +
         flops_lines(plan) + ring_lines(plan) + time_lines(plan) + stage_lines(plan) +
         (plan.fits ? hours_text(plan) : "");  // no hours if it cannot run
}

ordered_json plan_json(const Plan& plan) {
  const Config& config = plan.request.config;
  const StepTimes& t = plan.times;
  ordered_json json;
  json["kind"] = "plan";
  json["hardware"] = plan.request.hardware.name;
  json["mesh"] = {
      {"data", config.mesh.data}, {"sequence", config.mesh.sequence}, {"layout", name_of(config.mesh.layout)}};
  json["parameters"] = plan.parameters;
  for (const RankPlan& kind : plan.memory) json["memory"].push_back(memory_json(kind));
  json["memory_needed"] = plan.need.device;
  json["host_needed"] = plan.need.host;
  json["fits"] = plan.fits;
  json["longest_context"] = plan.longest_context;
  json["flops_per_step"] = plan.flops.total();
  for (const auto& [key, name, value] : flops_parts) json["flops"][key] = plan.flops.*value;
  json["step_seconds"] = t.step_seconds;
  for (const auto& [key, name, value] : step_parts) json["seconds"][key] = t.*value;
  json["tokens_per_second"] = plan.tokens_per_second;
  json["mfu"] = plan.mfu;
  json["tokens"] = plan.tokens;
  json["steps"] = plan.steps;
  json["checkpoint_bytes"] = plan.checkpoint_bytes;
  if (!plan.fits) return json;
  json["hours"] = plan.hours;
  json["device_hours"] = plan.device_hours;
  return json;
}

std::vector<std::string> advice(const Config& config, const Hardware& hardware) {
  std::vector<std::string> sentences{"it " + memory_text(memory_need(config, hardware), hardware)};
  if (hardware.cores == 0) {
    const std::int64_t most = std::min<std::int64_t>(RingWork::largest_ring, config.training.seq_len);
    Config ring = config;  // of all devices, with one sequence per step
    ring.mesh.data = ring.training.global_batch_size = ring.training.micro_batch_size = 1;
    std::int64_t& devices = ring.mesh.sequence;
    devices *= config.mesh.data;
    while (devices <= most && !memory_need(ring, hardware).fits(hardware)) devices *= 2;
    sentences.push_back(devices <= most ? fmt::format("it would fit on {} devices, in one ring", devices)
                                        : fmt::format("it does not fit on any number of devices up to {}", most));
  }
  const std::int64_t length = longest_context(config, hardware);
  if (length > 0) sentences.push_back(fmt::format("it would fit with training.seq_len up to {}", length));
  const std::vector<std::string> names = roomy_hardware(config, hardware.cores > 0);
  if (!names.empty()) sentences.push_back(fmt::format("there is room on {}", fmt::join(names, ", ")));
  sentences.push_back(
      "these need less: training.shard: weights, training.recompute: full, training.offload (on a GPU), bfloat16 as "
      "optimizer.moments or optimizer.gradients, a smaller model, training.micro_batch_size or training.loss_chunk");
  return sentences;
}

}  // namespace ringtrain
