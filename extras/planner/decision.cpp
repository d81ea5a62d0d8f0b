#include "extras/planner/decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "extras/planner/advice.h"
#include "framework/counted.h"
#include "framework/profile/progress.h"

namespace ringtrain {

namespace {

constexpr double gibibyte = 1 << 30;

Decision decide_one(const PlanRequest& asked, const Offer& offer, std::int64_t devices,
                    const std::vector<std::int64_t>& batches) {
  PlanRequest request = asked;
  request.hardware = offer.hardware;
  request.device_price = offer.device_price;
  request.longest_context = false;
  Decision decision{.offer = offer, .devices = devices, .search = search_plans(request, devices, batches)};
  const Candidate& choice = decision.search.candidates.front();
  request.config = config_of(asked.config, choice);
  if (!choice.fits) {
    decision.advice = advice(request.config, offer.hardware);
    return decision;
  }
  decision.plan = make_plan(request);
  if (asked.tokens > 0) request.config.training.steps = static_cast<std::int64_t>(decision.plan.run.steps);
  decision.flags = set_flags(asked.config, request.config);
  return decision;
}

std::string row(std::size_t number, const Decision& d, bool priced) {
  std::string text = fmt::format("{:>3}  {:<14} {:>7}  ", number, d.offer.name, d.devices);
  const Candidate& c = d.search.candidates.front();
  text += fmt::format("{:>3} {:>9}  {:>6}x{:<3} {:>8.1f} {:>9.1f}  ", d.fits() ? "yes" : "no",
                      fmt::format("{}x{}", c.mesh.data, c.mesh.sequence), c.global_batch_size / c.micro_batch_size,
                      c.micro_batch_size, c.need.device / gibibyte, c.need.host / gibibyte);
  if (!d.fits()) return text + "nothing fits\n";
  const Plan& plan = d.plan;
  text += fmt::format("{:>9.4g} {:>9.4g} {:>5.1f} {:>9.4g} {:>12.4g}", plan.times.step_seconds, plan.tokens_per_second,
                      100 * plan.mfu, plan.hours, plan.device_hours);
  if (priced) text += d.offer.device_price > 0 ? fmt::format(" {:>9.4g}", plan.price) : fmt::format(" {:>9}", "-");
  return text + "\n";
}

/// Returns e.g. "fastest: row 3, 1.2 hours": the decision with the least of a value, among those that have one.
std::string least(const std::vector<Decision>& decisions, const char* name, double Plan::*value, const char* unit) {
  const Decision* best = nullptr;
  for (const Decision& d : decisions) {
    if (d.fits() && d.plan.*value > 0 && (best == nullptr || d.plan.*value < best->plan.*value)) best = &d;
  }
  if (best == nullptr) return "";
  return fmt::format("{}: row {}, {} of {}: {:.4g}{}\n", name, best - decisions.data() + 1, best->devices,
                     best->offer.name, best->plan.*value, unit);
}

}  // namespace

std::vector<Decision> decide(const PlanRequest& request, const std::vector<Offer>& offers,
                             const std::vector<std::int64_t>& devices, const std::vector<std::int64_t>& batches) {
  std::vector<Decision> decisions;
  for (const Offer& offer : offers) {
    for (const std::int64_t count : devices) decisions.push_back(decide_one(request, offer, count, batches));
  }
  return decisions;
}

std::string decision_table(const std::vector<Decision>& decisions) {
  const bool priced = std::ranges::any_of(decisions, [](const Decision& d) { return d.plan.price > 0; });
  std::string text =
      fmt::format("{:>3}  {:<14} {:>7}  {:>3} {:>9}  {:>10} {:>8} {:>9}  {:>9} {:>9} {:>5} {:>9} {:>12}{}\n", "",
                  "hardware", "devices", "fit", "mesh", "batch", "GiB/card", "host/node", "step, s", "tokens/s",
                  "MFU %", "hours", "device hours", priced ? "     price" : "");
  std::set<std::string> told;
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    text += row(i + 1, decisions[i], priced);
    told.insert(told_rates(decisions[i].offer.hardware));
  }
  text += "batch: micro-batches of all data ranks x sequences of each; hours: with evaluations and saves\n";
  if (std::ranges::any_of(decisions,
                          [](const Decision& d) { return d.flags.find("global_batch_size") != std::string::npos; })) {
    text += "another batch than the config's also learns otherwise; --batch holds it\n";
  }
  for (const std::string& sentence : told) {
    if (!sentence.empty()) text += sentence + "\n";
  }
  if (decisions.size() > 1) {
    text += least(decisions, "fastest", &Plan::hours, " hours") +
            least(decisions, "fewest device hours", &Plan::device_hours, "") +
            least(decisions, "cheapest", &Plan::price, "");
  }
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    const Decision& d = decisions[i];
    if (d.fits()) text += fmt::format("{:>3} {}\n", i + 1, d.flags.empty() ? " the config as it is" : d.flags);
    for (const std::string& sentence : d.advice) text += fmt::format("{:>3}  does not fit: {}\n", i + 1, sentence);
  }
  return text;
}

nlohmann::ordered_json decisions_json(const std::vector<Decision>& decisions) {
  auto list = nlohmann::ordered_json::array();
  for (const Decision& d : decisions) {
    const Candidate& c = d.search.candidates.front();
    nlohmann::ordered_json json{{"hardware", d.offer.name},
                                {"devices", d.devices},
                                {"fits", d.fits()},
                                {"memory_needed", c.need.device},
                                {"host_needed", c.need.host}};
    if (d.fits()) {
      const Plan& plan = d.plan;
      json["step_seconds"] = plan.times.step_seconds;
      json["tokens_per_second"] = plan.tokens_per_second;
      json["mfu"] = plan.mfu;
      json["hours"] = plan.hours;
      json["device_hours"] = plan.device_hours;
      if (d.offer.device_price > 0) json["price"] = plan.price;
      json["flags"] = d.flags;
    } else {
      json["advice"] = d.advice;
    }
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace ringtrain
