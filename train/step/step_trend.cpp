#include "train/step/step_trend.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

namespace ringtrain {

namespace {

struct Spread {
  double mean = 0, deviation = 0;
};

/// Returns nothing for fewer than `least` values.
std::optional<Spread> spread_of(const std::deque<double>& values) {
  if (values.size() < StepTrend::least) return std::nullopt;
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return Spread{mean, std::sqrt(squares / count)};
}

std::optional<double> z_score(double value, const std::optional<Spread>& before) {
  if (!std::isfinite(value) || !before || before->deviation <= 0) return std::nullopt;
  return (value - before->mean) / before->deviation;
}

void keep(double value, std::deque<double>& values) {
  if (!std::isfinite(value)) return;
  values.push_back(value);
  if (values.size() > StepTrend::window) values.pop_front();
}

}  // namespace

StepTrend::Verdict StepTrend::add(double loss, double grad_norm) {
  const std::optional<Spread> before = spread_of(losses_);
  Verdict verdict{z_score(loss, before), z_score(grad_norm, spread_of(grad_norms_)), ""};
  const bool updated = std::isfinite(loss) && std::isfinite(grad_norm);
  if (updated && before && loss > before->mean + spike_deviations * before->deviation &&
      loss > (1 + spike_share_of_mean) * before->mean) {
    verdict.loss_spike =
        fmt::format("{:.4f}, where the mean of the last {} is {:.4f} and their standard deviation {:.4f}", loss,
                    losses_.size(), before->mean, before->deviation);
  }
  keep(loss, losses_);
  keep(grad_norm, grad_norms_);
  return verdict;
}

}  // namespace ringtrain
