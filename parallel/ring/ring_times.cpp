#include "parallel/ring/ring_times.h"

#include <utility>

namespace ringtrain {

void RingTimes::read_some() {
  constexpr std::size_t many_events = 8192;
  if (clock_.size() > many_events && clock_.passed()) read();
}

RingLoads RingTimes::take() {
  clock_.wait();
  read();
  RingLoads loads = std::move(loads_);
  reset();
  return loads;
}

void RingTimes::read() {
  for (const Timed& time : timed_) {
    RingLoad& load = loads_[time.backward];
    (time.is_wait ? load.hop_waits[time.hop] : load.compute_seconds) += clock_.seconds(time.from, time.to);
  }
  timed_.clear();
  clock_.clear();
}

void RingTimes::reset() {
  for (RingLoad& load : loads_) load = {.hop_waits = std::vector<double>(ring_size_ + 1, 0.0)};
}

}  // namespace ringtrain
