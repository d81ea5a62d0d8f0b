#include "train/step/z_score.h"

#include <cmath>
#include <numeric>

namespace ringtrain {

std::optional<Spread> ZScore::spread() const {
  if (values_.size() < least) return std::nullopt;
  const auto count = static_cast<double>(values_.size());
  const double mean = std::accumulate(values_.begin(), values_.end(), 0.0) / count;
  double squares = 0;
  for (const double one : values_) squares += (one - mean) * (one - mean);
  return Spread{mean, std::sqrt(squares / count), values_.size()};
}

std::optional<double> ZScore::add(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  const std::optional<Spread> before = spread();
  values_.push_back(value);
  if (values_.size() > window) values_.pop_front();
  if (!before || before->deviation <= 0) return std::nullopt;
  return (value - before->mean) / before->deviation;
}

}  // namespace ringtrain
