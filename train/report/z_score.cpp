#include "train/report/z_score.h"

#include <cmath>
#include <numeric>

namespace ringtrain {

std::optional<double> ZScore::add(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  std::optional<double> score;
  if (values_.size() >= least) {
    const auto count = static_cast<double>(values_.size());
    const double mean = std::accumulate(values_.begin(), values_.end(), 0.0) / count;
    double squares = 0;
    for (const double one : values_) squares += (one - mean) * (one - mean);
    const double stddev = std::sqrt(squares / count);
    if (stddev > 0) score = (value - mean) / stddev;
  }
  values_.push_back(value);
  if (values_.size() > window) values_.pop_front();
  return score;
}

}  // namespace ringtrain
