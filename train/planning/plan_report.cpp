#include "train/planning/plan_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "framework/counted.h"
#include "framework/profile/progress.h"
#include "framework/storage/files.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

using nlohmann::ordered_json;

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.3f} s", seconds);
}

std::string flops_text(double flops) {
  if (flops >= 1e21) return fmt::format("{:.2f} ZFLOP", flops * 1e-21);
  if (flops >= 1e18) return fmt::format("{:.2f} EFLOP", flops * 1e-18);
  if (flops >= 1e15) return fmt::format("{:.2f} PFLOP", flops * 1e-15);
  if (flops >= 1e12) return fmt::format("{:.2f} TFLOP", flops * 1e-12);
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
  return text + fmt::format("{} of {}, which {} has: {}\n", human_bytes(plan.memory_needed),
                            human_bytes(hardware.memory_bytes), hardware.cores > 0 ? "a machine" : "a device",
                            plan.fits ? "it fits" : "it does not fit");
}

std::string flops_lines(const Plan& plan) {
  const StepFlops& f = plan.flops;
  std::string text = fmt::format("FLOPs of a step: {}\n", flops_text(f.total()));
  const auto line = [&](const char* name, double flops) {
    text += fmt::format("  {:<20} {:>14}  {:5.1f} %\n", name, flops_text(flops), 100 * flops / f.total());
  };
  line("projections", f.projections);
  line("attention forward", f.attention_forward);
  line("attention backward", f.attention_backward);
  line("feedforward", f.feedforward);
  line("head and loss", f.head);
  line("recompute", f.recompute);
  return text;
}

std::string hop_lines(const Plan& plan) {
  const HopPlan& hop = plan.hop;
  if (hop.forward.empty()) return "";
  std::string text = fmt::format(
      "a hop, forward: {} to compute, {} to transfer; hidden from {:.0f} tokens a rank on, and a rank has {:.0f}\n",
      seconds_text(hop.compute_seconds), seconds_text(hop.transfer_seconds), std::ceil(hop.tokens_to_hide), hop.tokens);
  text += fmt::format(
      "  the condition: tokens a rank >= r F / (v B), r = {:.3g} bytes a FLOP, F = {:.4g} TFLOP/s of attention,\n"
      "  v = {:.2f} of all pairs visible, B = {:.4g} GB/s: {:.0f} tokens, and {} of latency\n",
      hop.bytes_per_flop, hop.flops_per_second * 1e-12, hop.visible_share, hop.bandwidth * 1e-9,
      hop.bytes_per_flop * hop.flops_per_second / (hop.visible_share * hop.bandwidth), seconds_text(hop.latency));
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
  if (hop.forward.size() > shown) text += fmt::format("  ... of {} hops\n", plan.request.config.mesh.sequence);
  return text;
}

std::string time_lines(const Plan& plan) {
  const StepTimes& t = plan.times;
  std::string text = fmt::format("a step takes {}:\n", seconds_text(t.step_seconds));
  const auto line = [&](const char* name, double seconds) {
    text += fmt::format("  {:<34} {:>11}  {:5.1f} %\n", name, seconds_text(seconds), 100 * seconds / t.step_seconds);
  };
  line("matrix products", t.products);
  line("attention forward", t.attention_forward);
  line("attention backward", t.attention_backward);
  line("norms, activations, residuals", t.memory_passes);
  line("gradient sums and optimizer", t.update);
  line("waiting for the ring (exposed)", t.ring_wait);
  line("waiting for gradients (exposed)", t.reduction_wait);
  line("gathering weights", t.gather);
  if (t.offload_wait > 0) line("copies to the host (exposed)", t.offload_wait);
  return text;
}

ordered_json memory_json(const RankPlan& kind) {
  ordered_json json{{"ranks", kind.ranks.size()}, {"first_rank", kind.ranks.front()}};
  for (int i = 0; i < tag_count; ++i) json[name_of(static_cast<Tag>(i))] = kind.peak[static_cast<Tag>(i)];
  json["total"] = kind.peak.total;
  json["host"] = kind.host.total;
  return json;
}

ordered_json hops_json(const std::vector<HopTime>& hops) {
  ordered_json list = ordered_json::array();
  for (const HopTime& hop : hops) {
    list.push_back(
        {{"hop", hop.hop}, {"compute_seconds", hop.compute_seconds}, {"transfer_seconds", hop.transfer_seconds}});
  }
  return list;
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
  text += memory_text(plan);
  if (plan.longest_context > 0) {
    text += fmt::format("longest context that fits on this mesh: {} tokens\n", plan.longest_context);
  }
  text += flops_lines(plan) + hop_lines(plan) + time_lines(plan);
  text += fmt::format("{:.4g} tokens/s; MFU {:.1f} %: {}, of {:.4g} TFLOP/s a rank\n", plan.tokens_per_second,
                      100 * plan.mfu, mfu_formula, plan.rates.peak * 1e-12);
  text += fmt::format("{:.0f} steps are {} tokens: {:.4g} hours, {:.4g} device hours\n", plan.steps,
                      human_count(plan.steps * plan.step_tokens), plan.hours, plan.device_hours);
  return text;
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
  json["memory_needed"] = plan.memory_needed;
  json["fits"] = plan.fits;
  json["longest_context"] = plan.longest_context;
  json["flops_per_step"] = plan.flops.total();
  json["flops"] = {{"projections", plan.flops.projections},
                   {"attention_forward", plan.flops.attention_forward},
                   {"attention_backward", plan.flops.attention_backward},
                   {"feedforward", plan.flops.feedforward},
                   {"head", plan.flops.head},
                   {"recompute", plan.flops.recompute}};
  json["useful_flops"] = plan.useful_flops;
  const StepTimes& t = plan.times;
  json["step_seconds"] = t.step_seconds;
  json["seconds"] = {{"products", t.products},
                     {"attention_forward", t.attention_forward},
                     {"attention_backward", t.attention_backward},
                     {"memory_passes", t.memory_passes},
                     {"update", t.update},
                     {"ring_wait", t.ring_wait},
                     {"reduction_wait", t.reduction_wait},
                     {"gather", t.gather},
                     {"offload_wait", t.offload_wait}};
  json["simulated_layers"] = t.simulated_layers;
  json["events"] = t.events;
  json["hop"] = {{"compute_seconds", plan.hop.compute_seconds},
                 {"transfer_seconds", plan.hop.transfer_seconds},
                 {"exposed_seconds", plan.hop.exposed_seconds},
                 {"tokens_to_hide", plan.hop.tokens_to_hide},
                 {"tokens", plan.hop.tokens},
                 {"flops_per_second", plan.hop.flops_per_second},
                 {"bandwidth", plan.hop.bandwidth},
                 {"latency", plan.hop.latency},
                 {"visible_share", plan.hop.visible_share},
                 {"bytes_per_flop", plan.hop.bytes_per_flop},
                 {"forward", hops_json(plan.hop.forward)},
                 {"backward", hops_json(plan.hop.backward)}};
  json["tokens_per_second"] = plan.tokens_per_second;
  json["mfu"] = plan.mfu;
  json["peak_flops"] = plan.rates.peak;
  json["tokens"] = plan.steps * plan.step_tokens;
  json["steps"] = plan.steps;
  json["hours"] = plan.hours;
  json["device_hours"] = plan.device_hours;
  return json;
}

ordered_json search_json(const SearchResult& result) {
  ordered_json list = ordered_json::array();
  for (const Candidate& c : result.candidates) {
    ordered_json json{{"mesh", fmt::format("{}x{}", c.mesh.data, c.mesh.sequence)},
                      {"layout", name_of(c.mesh.layout)},
                      {"recompute", name_of(c.recompute)},
                      {"offload", name_of(c.offload)},
                      {"micro_batch_size", c.micro_batch_size},
                      {"memory_needed", c.memory_needed},
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
