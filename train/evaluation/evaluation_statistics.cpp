#include "train/evaluation/evaluation_statistics.h"

#include <cmath>
#include <limits>
#include <map>
#include <numbers>

#include "framework/error.h"

namespace ringtrain {

namespace {

/// Return ln(gamma(x)), x > 0. Several ranks ask at once, and std::lgamma writes the sign to a global.
double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

/// Return the regularised incomplete beta function I_x(a, b), by Lentz's continued fraction (Press et al., Numerical
/// Recipes, section 6.4).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(b, a, 1 - x);
  const double front =
      std::exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * std::log(x) + b * std::log1p(-x)) / a;
  constexpr double tiny = 1e-300;
  const auto guarded = [](double value) { return std::abs(value) < tiny ? tiny : value; };
  double c = 1, d = 1 / guarded(1 - (a + b) * x / (a + 1));
  double fraction = d;
  for (int m = 1; m < 1000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / guarded(1 + even * d);
    c = guarded(1 + even / c);
    fraction *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / guarded(1 + odd * d);
    c = guarded(1 + odd / c);
    fraction *= c * d;
    if (std::abs(c * d - 1) < 1e-15) break;
  }
  return front * fraction;
}

/// What one document added: S_d and W_d.
struct Cluster {
  double sum = 0, weight = 0;
};

Estimate ratio_estimate(const std::map<std::int64_t, Cluster>& clusters) {
  double sum = 0, weight = 0;
  for (const auto& [document, cluster] : clusters) {
    sum += cluster.sum;
    weight += cluster.weight;
  }
  Estimate estimate;
  estimate.value = sum / weight;
  const auto documents = static_cast<double>(clusters.size());
  if (clusters.size() < 2) {
    estimate.ci95 = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
    return estimate;
  }
  double squares = 0;
  for (const auto& [document, cluster] : clusters) {
    const double residual = cluster.sum - estimate.value * cluster.weight;
    squares += residual * residual;
  }
  const double error = std::sqrt(documents / (documents - 1) * squares) / weight;
  const double half = student_t(0.95, documents - 1) * error;
  estimate.ci95 = {estimate.value - half, estimate.value + half};
  return estimate;
}

}  // namespace

double student_t(double p, double degrees) {
  ensure(p > 0 && p < 1 && degrees >= 1, "a probability and degrees of freedom");
  // P(|T| <= t) = 1 - I_x(v/2, 1/2) with x = v / (v + t^2); it grows with t, so bisect.
  const auto within = [&](double t) { return 1 - incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)); };
  double low = 0, high = 1;
  while (within(high) < p) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-13 * high; ++i) {
    const double middle = 0.5 * (low + high);
    (within(middle) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

std::vector<LengthResult> summarise(std::span<const std::int64_t> lengths,
                                    const std::vector<std::vector<BlockSums>>& sums,
                                    std::span<const std::int64_t> documents) {
  std::vector<LengthResult> results;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::map<std::int64_t, Cluster> clusters, differences;
    double bytes = 0, nll = 0, targets = 0;
    for (std::size_t block = 0; block < documents.size(); ++block) {
      const BlockSums& at = sums[i][block];
      Cluster& cluster = clusters[documents[block]];
      cluster.sum += at.nll;
      cluster.weight += at.weight;
      Cluster& difference = differences[documents[block]];
      difference.sum += at.nll - sums[0][block].nll;
      difference.weight += at.weight;
      nll += at.nll;
      bytes += at.bytes;
      targets += at.targets;
    }
    LengthResult result;
    result.context_length = lengths[i];
    result.targets = std::llround(targets);
    result.nll = ratio_estimate(clusters);
    result.perplexity = std::exp(result.nll.value);
    result.bits_per_byte = bytes > 0 ? nll / std::numbers::ln2 / bytes : std::numeric_limits<double>::quiet_NaN();
    result.delta = ratio_estimate(differences);
    results.push_back(result);
  }
  return results;
}

}  // namespace ringtrain
