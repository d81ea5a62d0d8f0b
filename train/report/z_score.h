// How unusual a value is beside those before it: for a loss or a gradient norm that jumps. Starts anew with a resume.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace ringtrain {

/// The last finite values of a series.
class RecentValues {
 public:
  static constexpr std::size_t window = 50, least = 20;

  struct Spread {
    double mean = 0, deviation = 0;  // standard
    std::size_t count = 0;
  };
  /// Returns what the values come to, of which there are `window` at most; nothing below `least`.
  std::optional<Spread> spread() const;
  void add(double value);

 private:
  std::deque<double> values_;
};

/// The z-score of each value against the finite ones before it.
class ZScore {
 public:
  /// Takes the next value. Returns (value - mean) / standard deviation of those before it; nothing if they are too few
  /// or all alike, or if it is not finite.
  std::optional<double> add(double value);

 private:
  RecentValues values_;
};

}  // namespace ringtrain
