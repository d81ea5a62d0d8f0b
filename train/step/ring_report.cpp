#include "train/step/ring_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace ringtrain {

namespace {

constexpr std::array names{"forward", "backward"};

}  // namespace

void append(std::vector<double>& values, const RingLoads& loads) {
  for (const auto& [pairs, compute_seconds, hop_waits] : loads) {  // every member of a load: a new one does not compile
    values.push_back(static_cast<double>(pairs));
    values.push_back(compute_seconds);
    values.insert(values.end(), hop_waits.begin(), hop_waits.end());
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

}  // namespace ringtrain
