// Events of a stream's work, for times that are read when a value is logged. On a GPU calls are ordered, not finished:
// the host's clock would time the giving of work. There an event is one of CUDA's, and nobody waits for it before the
// times are read; they are used again. On a CPU a call is done when it returns: an event is the time.
#pragma once

#include <cstddef>
#include <memory>

#include "framework/stream.h"

namespace ringtrain {

class StreamClock {
 public:
  /// Counts the events of a clock since clear().
  using Event = std::size_t;

  StreamClock();
  StreamClock(StreamClock&&) noexcept = default;
  StreamClock& operator=(StreamClock&&) noexcept = default;

  /// Records that the stream has done what it was given so far. All events of a clock are of one stream.
  Event record(Stream& stream);
  /// Returns how many events it keeps.
  std::size_t size() const;
  /// Returns whether all of them have passed; asks, and does not wait.
  bool passed() const;
  /// Returns when all have passed: at once where the host has waited for the stream before.
  void wait() const;
  /// Returns the seconds between two events that have passed.
  double seconds(Event from, Event to) const;
  /// Forgets all events, passed or not.
  void clear();

 private:
  struct State;
  std::shared_ptr<State> state_;  // of this object alone
};

}  // namespace ringtrain
