#include "parallel/ring/ring_times.h"

#include <utility>

namespace ringtrain {

void RingTimes::read_some() {
  constexpr std::size_t many_events = 8192;
  if (clock_.size() > many_events && clock_.passed()) read();
}

RingLoad RingTimes::take() {
  clock_.wait();
  read();
  RingLoad load = std::move(load_);
  reset();
  return load;
}

void RingTimes::read() {
  for (const Timed& time : timed_) {
    RingPassLoad& of = load_of(time.backward);
    (time.is_wait ? of.hop_waits[time.hop] : of.compute_seconds) += clock_.seconds(time.from, time.to);
  }
  timed_.clear();
  clock_.clear();
}

void RingTimes::reset() {
  for (RingPassLoad* one : {&load_.forward, &load_.backward}) {
    *one = {};
    one->hop_waits.assign(ring_size_ + 1, 0.0);
  }
}

}  // namespace ringtrain
