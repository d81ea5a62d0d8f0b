// A point in a stream's work that the host can wait for. On a CPU a call is done when it returns: there is nothing to
// wait for.
#pragma once

#include <memory>

#include "framework/stream.h"

namespace ringtrain {

class Event {
 public:
  Event();
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  /// Records what the stream was given so far; what was recorded before is forgotten.
  void record(Stream& stream);
  /// Returns when the stream has passed the event; at once if there is none.
  void wait() const;

 private:
  struct Recorded;
  std::unique_ptr<Recorded> event_;  // null: nothing to wait for
};

}  // namespace ringtrain
