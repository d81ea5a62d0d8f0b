#include "train/step/ring_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace ringtrain {

namespace {

constexpr std::array names{"forward", "backward"};

/// Returns a pass's line, from sums over so many steps.
std::string line_of(const RingReport& sum, std::size_t pass, int steps) {
  constexpr std::size_t max_hops = 9;  // of a longer ring, those with the longest waits
  const std::vector<double>& waits = sum.hop_waits[pass];
  std::vector<std::size_t> hops(waits.size());
  std::iota(hops.begin(), hops.end(), std::size_t{0});
  if (hops.size() > max_hops) {
    std::ranges::stable_sort(hops, [&](std::size_t a, std::size_t b) { return waits[a] > waits[b]; });
    hops.resize(max_hops);
    std::ranges::sort(hops);
  }
  std::string by_hop;
  for (const std::size_t hop : hops) {
    by_hop += fmt::format("{}{} {:.1f}", by_hop.empty() ? "" : ", ",
                          hop + 1 == waits.size() ? "end" : std::to_string(hop), waits[hop] / steps * 1e3);
  }
  const double waited = std::accumulate(waits.begin(), waits.end(), 0.0);
  return fmt::format(
      "  {:<9} slowest rank's attention takes {:.3f} x the mean; exposed communication {:.1f} ms a step, "
      "{:.1f}% of it; ms by hop: {}",
      fmt::format("{}:", names[pass]), sum.time_imbalance[pass] / steps, waited / steps * 1e3,
      100 * waited / sum.seconds, by_hop);
}

}  // namespace

void append(std::vector<double>& values, const RingLoads& own) {
  for (const RingLoad& pass : own) {
    values.push_back(static_cast<double>(pass.pairs));
    values.push_back(pass.compute_seconds);
    values.insert(values.end(), pass.hop_waits.begin(), pass.hop_waits.end());
  }
}

RingReport ring_report(const Mesh& mesh, std::span<const std::span<const double>> loads) {
  const auto N = static_cast<std::size_t>(mesh.sequence), fields = N + 3;  // of a pass: pairs, seconds, waits by hop
  const auto worst_imbalance = [&](std::size_t field) {                    // of the most uneven ring
    double worst = 1;
    for (std::size_t first = 0; first < loads.size(); first += N) {
      std::vector<double> ring;
      for (const auto& load : loads.subspan(first, N)) ring.push_back(load[field]);
      worst = std::max(worst, imbalance(ring));
    }
    return worst;
  };
  RingReport report;
  report.pairs_imbalance = worst_imbalance(0);
  for (std::size_t pass = 0; pass < names.size(); ++pass) {
    report.time_imbalance[pass] = worst_imbalance(pass * fields + 1);
    for (std::size_t hop = 0; hop <= N; ++hop) {
      double sum = 0;
      for (const auto& load : loads) sum += load[pass * fields + 2 + hop];
      report.hop_waits[pass].push_back(sum / mesh.size());
    }
  }
  return report;
}

double six_digits(double value) {
  return std::isfinite(value) ? std::stod(fmt::format("{:.6g}", value)) : value;
}

nlohmann::ordered_json to_json(const RingReport& report) {
  nlohmann::ordered_json json{{"pairs_imbalance", six_digits(report.pairs_imbalance)}};
  for (std::size_t pass = 0; pass < names.size(); ++pass) {
    auto waits = nlohmann::ordered_json::array();
    for (const double wait : report.hop_waits[pass]) waits.push_back(six_digits(wait));
    json[names[pass]] = {{"time_imbalance", six_digits(report.time_imbalance[pass])}, {"hop_wait_seconds", waits}};
  }
  return json;
}

void RingReport::add(const RingReport& step, double step_seconds) {
  if (++steps <= 2) {  // the second takes the first one's place
    const int added = steps;
    *this = step;
    seconds = step_seconds;
    steps = added;
    return;
  }
  pairs_imbalance += step.pairs_imbalance;
  for (std::size_t pass = 0; pass < names.size(); ++pass) {
    time_imbalance[pass] += step.time_imbalance[pass];
    for (std::size_t hop = 0; hop < hop_waits[pass].size(); ++hop) hop_waits[pass][hop] += step.hop_waits[pass][hop];
  }
  seconds += step_seconds;
}

std::vector<std::string> RingReport::lines() const {
  if (steps == 0) return {};
  const int counted = std::max(steps - 1, 1);
  return {fmt::format(
              "ring attention over {} ranks, mean of {} steps: the busiest rank has {:.3f} x the mean query-key pairs",
              hop_waits[0].size() - 1, counted, pairs_imbalance / counted),
          line_of(*this, 0, counted), line_of(*this, 1, counted)};
}

}  // namespace ringtrain
