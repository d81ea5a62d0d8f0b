// A point in a stream's work that the host can wait for. On a CPU a call is done when it returns: there is nothing to
// wait for.
#pragma once

#include <memory>

#include "framework/stream.h"

namespace ringtrain {

class StreamMark {
 public:
  StreamMark();
  ~StreamMark();
  StreamMark(StreamMark&&) noexcept;
  StreamMark& operator=(StreamMark&&) noexcept;

  /// Marks what the stream was given so far; the mark before is forgotten.
  void record(Stream& stream);
  /// Returns when the stream has passed the mark; at once if there is none.
  void wait() const;

 private:
  struct Event;
  std::unique_ptr<Event> event_;  // null: nothing to wait for
};

}  // namespace ringtrain
