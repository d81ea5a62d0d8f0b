// Times by one clock as another clock would tell them: those of a rank's process as those of rank 0's, so that what all
// processes recorded is one timeline. The clocks may begin anywhere, and one may run a little faster.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ringtrain {

/// One moment by two clocks, in nanoseconds: the own clock's time, and the reference's, which is off by `error` at
/// most.
struct ClockPair {
  std::int64_t own = 0, reference = 0, error = 0;
};

/// The line through two such moments: exact but for their errors, as long as neither clock changes its rate between
/// them. By one moment alone both clocks have one rate. It never turns the order of two times around.
class ClockMapping {
 public:
  /// The clocks are one.
  ClockMapping() = default;
  explicit ClockMapping(const ClockPair& only) : first_(only), last_(only) {}
  /// first: before last, by both clocks.
  ClockMapping(const ClockPair& first, const ClockPair& last) : first_(first), last_(last) {}

  /// Returns the reference's time at the own clock's time, both in nanoseconds.
  std::int64_t operator()(std::int64_t own) const {
    const std::int64_t since = own - first_.own;
    const auto ahead = static_cast<double>(since) * rate_difference();  // small: a double has enough digits
    return first_.reference + since + static_cast<std::int64_t>(ahead);
  }
  /// Returns what the reference's clock was ahead of the own one at the first moment, in nanoseconds.
  std::int64_t offset() const { return first_.reference - first_.own; }
  /// Returns by how much more the reference's clock advances, as a share of the own one's time: 1e-6 is a microsecond
  /// a second.
  double rate_difference() const {
    const std::int64_t own = last_.own - first_.own;
    return own > 0 ? static_cast<double>(last_.reference - first_.reference - own) / static_cast<double>(own) : 0.0;
  }
  /// Returns the largest error between the two moments, in nanoseconds.
  std::int64_t error() const { return std::max(first_.error, last_.error); }

 private:
  ClockPair first_, last_;
};

}  // namespace ringtrain
