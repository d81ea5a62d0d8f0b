#include "train/evaluation/evaluation_statistics.h"

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <unsupported/Eigen/SpecialFunctions>

#include "framework/error.h"

namespace ringtrain {

namespace {

/// What one document added: S_d and W_d.
struct Cluster {
  double sum = 0, weight = 0;
};

/// By document.
class Clusters {
 public:
  void add(std::int64_t document, double sum, double weight) {
    clusters_[document].sum += sum;
    clusters_[document].weight += weight;
  }
  Estimate ratio() const;

 private:
  std::map<std::int64_t, Cluster> clusters_;
};

Estimate Clusters::ratio() const {
  Eigen::ArrayXd sums(clusters_.size()), weights(clusters_.size());
  Eigen::Index at = 0;
  for (const auto& [document, cluster] : clusters_) {
    sums[at] = cluster.sum;
    weights[at++] = cluster.weight;
  }
  Estimate estimate;
  estimate.value = sums.sum() / weights.sum();
  const auto documents = static_cast<double>(clusters_.size());
  if (clusters_.size() < 2) {
    estimate.ci95 = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
    return estimate;
  }
  const double squares = (sums - estimate.value * weights).square().sum();
  const double error = std::sqrt(documents / (documents - 1) * squares) / weights.sum();
  const double half = student_t(0.95, documents - 1) * error;
  estimate.ci95 = {estimate.value - half, estimate.value + half};
  return estimate;
}

}  // namespace

double student_t(double p, double degrees) {
  ensure(p > 0 && p < 1 && degrees >= 1, "a probability and degrees of freedom");
  // P(|T| <= t) = 1 - I_x(v/2, 1/2) with x = v / (v + t^2); it grows with t, so bisect.
  const auto within = [&](double t) {
    return 1 - Eigen::numext::betainc(degrees / 2, 0.5, degrees / (degrees + t * t));
  };
  double low = 0, high = 1;
  while (within(high) < p) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-13 * high; ++i) {
    const double middle = 0.5 * (low + high);
    (within(middle) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

Estimate estimate_over(std::span<const DocumentSum> sums) {
  Clusters clusters;
  for (const auto& [document, sum, weight] : sums) clusters.add(document, sum, weight);
  return clusters.ratio();
}

std::int64_t position_bucket(std::int64_t position) {
  return std::bit_width(static_cast<std::uint64_t>(position) - 1);
}

std::vector<PositionResult> summarise_positions(std::int64_t context_length, std::span<const PositionSums> sums,
                                                std::span<const std::int64_t> documents) {
  std::vector<PositionResult> results;
  const std::int64_t buckets = std::ssize(sums) / std::ssize(documents);
  for (std::int64_t bucket = 0; bucket <= position_bucket(context_length); ++bucket) {
    Clusters clusters, cuts;
    double targets = 0, weight = 0;
    for (std::int64_t block = 0; block < std::ssize(documents); ++block) {
      const PositionSums& at = sums[block * buckets + bucket];
      if (at.weight == 0) continue;
      clusters.add(documents[block], at.nll, at.weight);
      cuts.add(documents[block], at.nll - at.longest_nll, at.weight);
      targets += at.targets;
      weight += at.weight;
    }
    if (weight == 0) continue;
    PositionResult result;
    result.first = bucket == 0 ? 1 : (std::int64_t{1} << (bucket - 1)) + 1;
    result.last = std::min(std::int64_t{1} << bucket, context_length);
    result.targets = std::llround(targets);
    result.nll = clusters.ratio();
    result.cut = cuts.ratio();
    results.push_back(result);
  }
  return results;
}

std::vector<LengthResult> summarise(std::span<const std::int64_t> lengths, std::span<const BlockSums> sums,
                                    std::span<const std::int64_t> documents) {
  std::vector<LengthResult> results;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Clusters clusters, differences;
    double bytes = 0, nll = 0, targets = 0;
    for (std::size_t block = 0; block < documents.size(); ++block) {
      const BlockSums& at = sums[i * documents.size() + block];
      clusters.add(documents[block], at.nll, at.weight);
      differences.add(documents[block], at.nll - sums[block].nll, at.weight);
      nll += at.nll;
      bytes += at.bytes;
      targets += at.targets;
    }
    LengthResult result;
    result.context_length = lengths[i];
    result.targets = std::llround(targets);
    result.nll = clusters.ratio();
    result.perplexity = std::exp(result.nll.value);
    result.bits_per_byte = bytes > 0 ? nll / std::numbers::ln2 / bytes : std::numeric_limits<double>::quiet_NaN();
    result.delta = differences.ratio();
    results.push_back(result);
  }
  return results;
}

}  // namespace ringtrain
