#include "extras/planner/card_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "framework/error.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

using Json = nlohmann::json;
constexpr double tera = 1e12;

/// The rows of a report, which may be anybody's JSON.
class Report {
 public:
  Report(const std::string& text, const std::string& path) : path_(path) {
    try {
      json_ = parse_strict_json(text);
    } catch (const std::exception& error) {
      fail(ExitCode::data, "{} is no report of gpu_bench: {}", path, error.what());
    }
    if (!json_.is_object() || json_.value("program", Json()) != "gpu_bench" ||
        !json_.value("rows", Json()).is_array()) {
      fail(ExitCode::data, "{} is no report of gpu_bench", path);
    }
    if (json_.value("emulated", Json()) != false) {
      fail(ExitCode::usage,
           "{}: its figures are the emulator's, of a CPU; run gpu_bench of a build for GPUs, on the card", path);
    }
    if (json_.value("quick", Json()) != false) {
      fail(ExitCode::usage, "{}: gpu_bench --quick measures one length of attention alone; run it without", path);
    }
  }

  std::string card() const {
    const Json facts = json_.value("machine", Json::object());
    const Json name = facts.is_object() ? facts.value("GPU", Json()) : Json();
    return name.is_string() ? name.get<std::string>() : "a card";
  }

  /// Calls take(parameters, value) for each row of this name.
  template <class Take>
  void rows(const std::string& group, const std::string& name, const Take& take) const {
    bool found = false;
    for (const Json& row : json_["rows"]) {
      if (!row.is_object() || row.value("group", Json()) != group || row.value("name", Json()) != name) continue;
      const Json value = row.value("value", Json());
      if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0) {
        fail(ExitCode::usage, "{}: {} of {} has no number; run gpu_bench again", path_, name, group);
      }
      take(row.value("parameters", Json::object()), value.get<double>());
      found = true;
    }
    if (!found)
      fail(ExitCode::usage, "{} has no {} of {}: run gpu_bench --only {} --append", path_, name, group, group);
  }

 private:
  const std::string& path_;
  Json json_;
};

/// Returns attention's rates at head size 128, causal, as many key/value heads as heads, by the block's tokens.
std::map<std::int64_t, double> attention_rates(const Report& report, const std::string& name) {
  std::map<std::int64_t, double> rates;
  report.rows("attention", name, [&](const Json& of, double value) {
    if (!of.is_object() || of.value("D", Json()) != 128 || of.value("causal", Json()) != true ||
        of.value("G", Json()) != of.value("H", Json(0)) || !of.value("S", Json()).is_number_integer()) {
      return;
    }
    rates[of["S"].get<std::int64_t>()] = value * tera;
  });
  return rates;
}

}  // namespace

Hardware hardware_of_card(const Hardware& base, const std::string& text, const std::string& path) {
  const Report report(text, path);
  const double peak = base.peak_bfloat16;
  const auto efficiency = [&](const std::string& what, double rate) {
    if (rate <= peak) return rate / peak;
    fail(ExitCode::usage,
         "{}: {} at {:.4g} FLOP/s is beyond {:.4g}, the bfloat16 peak of {}; choose --hardware of this card", path,
         what, rate, peak, base.name);
  };
  if (peak <= 0 || base.cores > 0) {
    fail(ExitCode::usage, "{} is no hardware of GPUs in bfloat16; choose --hardware of a card, as h100", base.name);
  }
  Hardware card = base;
  card.name = fmt::format("{}, measured by gpu_bench; peak, memory's size and links of {}", report.card(), base.name);
  card.rates = RatesOf::ringtrain;

  std::vector<double> products;
  for (const char* const product : {"forward", "input gradient", "weight gradient"}) {
    report.rows("machine", fmt::format("matrix product {}", product),
                [&](const Json&, double value) { products.push_back(value * tera); });
  }
  std::ranges::sort(products);
  card.matmul_efficiency = efficiency("a matrix product", products[products.size() / 2]);
  report.rows("machine", "device-to-device copy",
              [&](const Json&, double value) { card.memory_bandwidth = value * tera; });

  const auto forward = attention_rates(report, "forward"), backward = attention_rates(report, "backward");
  const auto fastest = std::ranges::max_element(forward, {}, [](const auto& one) { return one.second; });
  if (forward.empty() || !backward.contains(fastest->first)) {
    fail(ExitCode::usage,
         "{} has no causal attention at head size 128, forward and backward: run gpu_bench --only "
         "attention --append",
         path);
  }
  card.attention_forward_efficiency = efficiency("attention forward", fastest->second);
  card.attention_backward_efficiency = efficiency("attention backward", backward.at(fastest->first));

  // Shorter blocks than were measured keep base's shares, as far as these reach what is known.
  card.attention_blocks.clear();
  const std::int64_t shortest = forward.begin()->first;
  const double at_shortest = forward.begin()->second / fastest->second;
  for (const BlockShare& block : base.attention_blocks) {
    if (block.tokens >= shortest) break;
    const double scaled = block.share * at_shortest / base.attention_share(static_cast<double>(shortest));
    card.attention_blocks.push_back({block.tokens, std::min(1.0, scaled)});
  }
  for (const auto& [tokens, rate] : forward) card.attention_blocks.push_back({tokens, rate / fastest->second});
  return card;
}

}  // namespace ringtrain
