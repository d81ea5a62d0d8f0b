// Events in a stream's work, whose times are read when a value is logged. On a GPU, calls are ordered, not finished, so
// the host's clock would only time how long it takes to issue the work. There, events are CUDA events, which are
// reused, and nobody waits for them before the times are read. On a CPU, a call is done when it returns, so an event is
// the time.
#pragma once

#include <cstddef>
#include <memory>

#include "framework/stream.h"

namespace ringtrain {

class StreamClock {
 public:
  /// The index of an event of a clock since clear().
  using Event = std::size_t;

  StreamClock();
  StreamClock(StreamClock&&) noexcept = default;
  StreamClock& operator=(StreamClock&&) noexcept = default;

  /// Records that the stream has done the work that it has received so far. All events of a clock are of one stream.
  Event record(Stream& stream);
  /// Returns the number of events.
  std::size_t size() const;
  /// Returns whether all of them have passed; does not wait.
  bool passed() const;
  /// Returns when all have passed: at once if the host has already waited for the stream.
  void wait() const;
  /// Returns the seconds between two events that have passed.
  double seconds(Event from, Event to) const;
  /// Forgets all events, passed or not.
  void clear();

 private:
  struct State;
  std::shared_ptr<State> state_;  // owned only by this object
};

}  // namespace ringtrain
