// Moments of a stream's work, for times that are read when a value is logged. On a GPU calls are ordered, not finished:
// the host's clock would time the giving of work. There a moment is an event in the stream, and nobody waits for it
// before the times are read; events are used again. On a CPU a call is done when it returns: a moment is the time.
#pragma once

#include <cstddef>
#include <memory>

#include "framework/stream.h"

namespace ringtrain {

class StreamClock {
 public:
  /// Counts the moments of a clock since clear().
  using Moment = std::size_t;

  StreamClock();
  ~StreamClock();
  StreamClock(StreamClock&&) noexcept;
  StreamClock& operator=(StreamClock&&) noexcept;

  /// Return the moment at which the stream has done what it was given so far. All moments of a clock are of one stream.
  Moment mark(Stream& stream);
  /// Return how many moments it keeps.
  std::size_t size() const;
  /// Return whether all of them have passed; asks, and does not wait.
  bool passed() const;
  /// Returns when all have passed: at once where the host has waited for the stream before.
  void wait() const;
  /// Return the seconds between two moments that have passed.
  double seconds(Moment from, Moment to) const;
  /// Forgets all moments, passed or not.
  void clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ringtrain
