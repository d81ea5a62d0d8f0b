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
  std::map<std::int64_t, DocumentSum> documents;  // S_d and W_d
  for (const auto& [document, sum, weight] : sums) {
    documents[document].sum += sum;
    documents[document].weight += weight;
  }
  Eigen::ArrayXd totals(documents.size()), weights(documents.size());
  Eigen::Index at = 0;
  for (const auto& [document, total] : documents) {
    totals[at] = total.sum;
    weights[at++] = total.weight;
  }
  const double ratio = totals.sum() / weights.sum(), none = std::numeric_limits<double>::quiet_NaN();
  const auto count = static_cast<double>(documents.size());
  if (documents.size() < 2) return {ratio, {none, none}};
  const double squares = (totals - ratio * weights).square().sum();
  const double error = std::sqrt(count / (count - 1) * squares) / weights.sum();
  const double half = student_t(0.95, count - 1) * error;
  return {ratio, {ratio - half, ratio + half}};
}

std::int64_t position_bucket(std::int64_t position) {
  return std::bit_width(static_cast<std::uint64_t>(position) - 1);
}

std::vector<PositionResult> summarize_positions(std::int64_t context_length, std::span<const PositionSums> sums,
                                                std::span<const std::int64_t> documents) {
  std::vector<PositionResult> results;
  const std::int64_t buckets = std::ssize(sums) / std::ssize(documents);
  for (std::int64_t bucket = 0; bucket <= position_bucket(context_length); ++bucket) {
    std::vector<DocumentSum> values, cuts;
    double targets = 0, weight = 0;
    for (std::int64_t block = 0; block < std::ssize(documents); ++block) {
      const PositionSums& at = sums[block * buckets + bucket];
      if (at.weight == 0) continue;
      values.push_back({documents[block], at.nll, at.weight});
      cuts.push_back({documents[block], at.nll - at.longest_nll, at.weight});
      targets += at.targets;
      weight += at.weight;
    }
    if (weight == 0) continue;
    PositionResult result;
    result.first = bucket == 0 ? 1 : (std::int64_t{1} << (bucket - 1)) + 1;
    result.last = std::min(std::int64_t{1} << bucket, context_length);
    result.targets = std::llround(targets);
    result.nll = estimate_over(values);
    result.cut = estimate_over(cuts);
    results.push_back(result);
  }
  return results;
}

std::vector<LengthResult> summarize(std::span<const std::int64_t> lengths, std::span<const BlockSums> sums,
                                    std::span<const std::int64_t> documents) {
  std::vector<LengthResult> results;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<DocumentSum> values, differences;
    double bytes = 0, nll = 0, targets = 0;
    for (std::size_t block = 0; block < documents.size(); ++block) {
      const BlockSums& at = sums[i * documents.size() + block];
      values.push_back({documents[block], at.nll, at.weight});
      differences.push_back({documents[block], at.nll - sums[block].nll, at.weight});
      nll += at.nll;
      bytes += at.bytes;
      targets += at.targets;
    }
    LengthResult result;
    result.context_length = lengths[i];
    result.targets = std::llround(targets);
    result.nll = estimate_over(values);
    result.perplexity = std::exp(result.nll.value);
    result.bits_per_byte = bytes > 0 ? nll / std::numbers::ln2 / bytes : std::numeric_limits<double>::quiet_NaN();
    result.delta = estimate_over(differences);
    results.push_back(result);
  }
  return results;
}

}  // namespace ringtrain
