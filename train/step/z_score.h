// How unusual a value is beside those before it: for a loss or a gradient norm that jumps.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace ringtrain {

/// The mean and the standard deviation of so many values.
struct Spread {
  double mean = 0, deviation = 0;
  std::size_t count = 0;
};

/// The z-score of each value against the finite ones before it: the last `window`, of which there must be `least`.
class ZScore {
 public:
  static constexpr std::size_t window = 50, least = 20;

  /// Returns what the values so far come to; nothing if they are too few.
  std::optional<Spread> spread() const;
  /// Takes the next value. Returns (value - mean) / standard deviation of those before it; nothing if they are too few
  /// or all alike, or if it is not finite.
  std::optional<double> add(double value);

 private:
  std::deque<double> values_;
};

}  // namespace ringtrain
