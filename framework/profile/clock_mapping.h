// Converts times of one clock to another: those of a rank's process to those of rank 0, so that the records of all
// processes form one timeline. The clocks may begin at any time, and one may run slightly faster.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ringtrain {

/// One moment measured by two clocks, in nanoseconds: the time of the local clock and that of the reference, whose
/// error is at most `error`.
struct ClockPair {
  std::int64_t local = 0, reference = 0, error = 0;
};

/// The line through two such moments: exact except for their errors, if neither clock changes its rate between them.
/// With only one moment, both clocks are assumed to have the same rate. It never reverses the order of two times.
class ClockMapping {
 public:
  /// The two clocks are the same.
  ClockMapping() = default;
  explicit ClockMapping(const ClockPair& only) : first_(only), last_(only) {}
  /// first: earlier than last, by both clocks.
  ClockMapping(const ClockPair& first, const ClockPair& last) : first_(first), last_(last) {}

  /// Returns the reference's time for a time of the local clock, both in nanoseconds.
  std::int64_t operator()(std::int64_t local) const {
    const std::int64_t since = local - first_.local;
    const auto ahead = static_cast<double>(since) * rate_difference();  // small: a double has enough digits
    return first_.reference + since + static_cast<std::int64_t>(ahead);
  }
  /// Returns how far the reference's clock was ahead of the local one at the first moment, in nanoseconds.
  std::int64_t offset() const { return first_.reference - first_.local; }
  /// Returns by how much more the reference's clock advances, as a fraction of the local clock's time: 1e-6 is a
  /// microsecond a second.
  double rate_difference() const {
    const std::int64_t span = last_.local - first_.local;
    return span > 0 ? static_cast<double>(last_.reference - first_.reference - span) / static_cast<double>(span) : 0.0;
  }
  /// Returns the largest error between the two moments, in nanoseconds.
  std::int64_t error() const { return std::max(first_.error, last_.error); }

 private:
  ClockPair first_, last_;
};

}  // namespace ringtrain
