// Measurements of a ring's passes: the visited pairs, and seconds of the device that computes. Times of a GPU are known
// only after its work; until then, their events are kept here. No communication.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/profile/stream_clock.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

class RingTimes {
 public:
  explicit RingTimes(int ring_size) : ring_size_(ring_size) { reset(); }

  /// Runs body(), which visits this many pairs, and times the work that it gives to the stream.
  template <class Body>
  void visit(Stream& stream, bool backward, std::int64_t pairs, const Body& body) {
    time(stream, {.backward = backward}, body);
    loads_[backward].pairs += pairs;
  }
  /// The same for waiting. hop: the hop that cannot continue before; ring_size: the end of the pass.
  template <class Body>
  void wait(Stream& stream, bool backward, int hop, const Body& body) {
    time(stream, {.backward = backward, .is_wait = true, .hop = hop}, body);
  }

  /// Reads the events of finished passes if there are many, as in a long evaluation. Does not wait.
  void read_some();
  /// Returns the measurements of the passes since the last call, whose end it waits for.
  RingLoads take();

 private:
  struct Timed {
    bool backward = false, is_wait = false;
    int hop = 0;  // of a wait
    StreamClock::Event from = 0, to = 0;
  };
  /// A ring of one has no other rank for comparison.
  template <class Body>
  void time(Stream& stream, Timed what, const Body& body) {
    if (ring_size_ == 1) return body();
    what.from = clock_.record(stream);
    body();
    what.to = clock_.record(stream);
    timed_.push_back(what);
  }
  void read();
  void reset();

  int ring_size_;
  RingLoads loads_;
  StreamClock clock_;
  std::vector<Timed> timed_;
};

}  // namespace ringtrain
