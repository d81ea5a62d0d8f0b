// What a ring's passes did and waited for, measured: the pairs that were visited, and seconds of who computes. Times of
// a GPU are known after the work that they are of; until then their events wait here. No communication.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/profile/stream_clock.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

class RingTimes {
 public:
  explicit RingTimes(int ring_size) : ring_size_(ring_size) { reset(); }

  /// Runs body(), which visits so many pairs, and times what it gives to the stream.
  template <class Body>
  void visit(Stream& stream, bool backward, std::int64_t pairs, const Body& body) {
    time(stream, {.backward = backward}, body);
    loads_[backward].pairs += pairs;
  }
  /// The same of waiting. hop: which one cannot go on before; ring_size: the end of the pass.
  template <class Body>
  void wait(Stream& stream, bool backward, int hop, const Body& body) {
    time(stream, {.backward = backward, .is_wait = true, .hop = hop}, body);
  }

  /// Reads the events of passes that are done, if there are many: a long evaluation has. Waits for nothing.
  void read_some();
  /// Returns what the passes since the last call were, for whose end it waits.
  RingLoads take();

 private:
  struct Timed {
    bool backward = false, is_wait = false;
    int hop = 0;  // of a wait
    StreamClock::Event from = 0, to = 0;
  };
  /// A ring of one has nobody to compare with.
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
