#include "train/step/ring_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace ringtrain {

namespace {

/// Appends a pass: pairs, seconds of work, waits by hop.
void append(std::vector<double>& values, const RingPassLoad& pass) {
  values.push_back(static_cast<double>(pass.pairs));
  values.push_back(pass.compute_seconds);
  values.insert(values.end(), pass.hop_waits.begin(), pass.hop_waits.end());
}

/// The numbers of all ranks, [world][passes][2 + N + 1].
struct Gathered {
  std::span<const std::span<const double>> loads;
  const Mesh& mesh;

  double of(int rank, int pass, int field) const {
    const int fields = mesh.sequence + 3;
    return loads[rank]
                [static_cast<std::size_t>(pass) * static_cast<std::size_t>(fields) + static_cast<std::size_t>(field)];
  }
  /// Returns the imbalance of the most uneven ring.
  double worst_imbalance(int pass, int field) const {
    double worst = 1;
    for (int data = 0; data < mesh.data; ++data) {
      std::vector<double> ring;
      ring.reserve(mesh.sequence);
      for (int s = 0; s < mesh.sequence; ++s) ring.push_back(of(data * mesh.sequence + s, pass, field));
      worst = std::max(worst, imbalance(ring));
    }
    return worst;
  }
  RingPassReport report(int pass) const {
    RingPassReport result;
    result.time_imbalance = worst_imbalance(pass, 1);
    for (int hop = 0; hop <= mesh.sequence; ++hop) {
      double sum = 0;
      for (int rank = 0; rank < mesh.size(); ++rank) sum += of(rank, pass, 2 + hop);
      result.hop_waits.push_back(sum / mesh.size());
    }
    return result;
  }
};

nlohmann::ordered_json pass_json(const RingPassReport& pass) {
  nlohmann::ordered_json json{{"time_imbalance", six_digits(pass.time_imbalance)},
                              {"hop_wait_seconds", nlohmann::ordered_json::array()}};
  for (const double wait : pass.hop_waits) json["hop_wait_seconds"].push_back(six_digits(wait));
  return json;
}

void add_to(RingPassReport& sum, const RingPassReport& pass) {
  sum.time_imbalance += pass.time_imbalance;
  for (std::size_t hop = 0; hop < pass.hop_waits.size(); ++hop) sum.hop_waits[hop] += pass.hop_waits[hop];
}

/// Returns a pass's line, from sums over so many steps.
std::string line_of(const char* name, const RingPassReport& sum, double seconds, int steps) {
  constexpr std::size_t max_hops = 9;  // of a longer ring, those with the longest waits
  std::vector<std::size_t> hops(sum.hop_waits.size());
  std::iota(hops.begin(), hops.end(), std::size_t{0});
  if (hops.size() > max_hops) {
    std::ranges::stable_sort(hops, [&](std::size_t a, std::size_t b) { return sum.hop_waits[a] > sum.hop_waits[b]; });
    hops.resize(max_hops);
    std::ranges::sort(hops);
  }
  std::string by_hop;
  for (const std::size_t hop : hops) {
    by_hop +=
        fmt::format("{}{} {:.1f}", by_hop.empty() ? "" : ", ",
                    hop + 1 == sum.hop_waits.size() ? "end" : std::to_string(hop), sum.hop_waits[hop] / steps * 1e3);
  }
  const double waits = std::accumulate(sum.hop_waits.begin(), sum.hop_waits.end(), 0.0);
  return fmt::format(
      "  {:<9} slowest rank's attention takes {:.3f} x the mean; exposed communication {:.1f} ms a step, "
      "{:.1f}% of it; ms by hop: {}",
      fmt::format("{}:", name), sum.time_imbalance / steps, waits / steps * 1e3, 100 * waits / seconds, by_hop);
}

}  // namespace

void append(std::vector<double>& values, const RingLoad& own) {
  append(values, own.forward);
  append(values, own.backward);
}

RingReport ring_report(const Mesh& mesh, std::span<const std::span<const double>> loads) {
  const Gathered gathered{loads, mesh};
  return {gathered.worst_imbalance(0, 0), gathered.report(0), gathered.report(1)};
}

double six_digits(double value) {
  return std::isfinite(value) ? std::stod(fmt::format("{:.6g}", value)) : value;
}

nlohmann::ordered_json to_json(const RingReport& report) {
  return {{"pairs_imbalance", six_digits(report.pairs_imbalance)},
          {"forward", pass_json(report.forward)},
          {"backward", pass_json(report.backward)}};
}

void RingSummary::add(const RingReport& report, double seconds) {
  if (++steps_ <= 2) {  // the second takes the first one's place
    sum_ = report;
    seconds_ = seconds;
    return;
  }
  sum_.pairs_imbalance += report.pairs_imbalance;
  add_to(sum_.forward, report.forward);
  add_to(sum_.backward, report.backward);
  seconds_ += seconds;
}

std::vector<std::string> RingSummary::lines() const {
  if (steps_ == 0) return {};
  const int counted = std::max(steps_ - 1, 1);
  return {fmt::format(
              "ring attention over {} ranks, mean of {} steps: the busiest rank has {:.3f} x the mean query-key pairs",
              sum_.forward.hop_waits.size() - 1, counted, sum_.pairs_imbalance / counted),
          line_of("forward", sum_.forward, seconds_, counted), line_of("backward", sum_.backward, seconds_, counted)};
}

}  // namespace ringtrain
