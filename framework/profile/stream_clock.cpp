#include "framework/profile/stream_clock.h"

#include <chrono>
#include <vector>

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#include "framework/cuda/event.h"
#endif

namespace ringtrain {

struct StreamClock::State {
  std::size_t size = 0;
  std::vector<std::chrono::steady_clock::time_point> times;  // on a CPU
#if RINGTRAIN_CUDA
  bool on_cuda = false;
  std::vector<cuda::Event> events;  // never shrinks: events are reused
#endif
};

StreamClock::StreamClock() : state_(std::make_shared<State>()) {}

StreamClock::Event StreamClock::record([[maybe_unused]] Stream& stream) {
  State& s = *state_;
#if RINGTRAIN_CUDA
  s.on_cuda = stream.on_cuda();
  if (s.on_cuda) {
    if (s.size == s.events.size()) s.events.emplace_back(cuda::Event::Timing::on);
    s.events[s.size].record(stream.cuda().stream());
    return s.size++;
  }
#endif
  s.times.push_back(std::chrono::steady_clock::now());
  return s.size++;
}

std::size_t StreamClock::size() const {
  return state_->size;
}

bool StreamClock::passed() const {
#if RINGTRAIN_CUDA
  if (state_->on_cuda && state_->size > 0) return state_->events[state_->size - 1].passed();
#endif
  return true;
}

void StreamClock::wait() const {
#if RINGTRAIN_CUDA
  if (state_->on_cuda && state_->size > 0) state_->events[state_->size - 1].synchronize();
#endif
}

double StreamClock::seconds(Event from, Event to) const {
#if RINGTRAIN_CUDA
  if (state_->on_cuda) {
    const auto seconds = state_->events[to].seconds_since(state_->events[from]);
    ensure(seconds.has_value(), "times are read of events that have passed");
    return *seconds;
  }
#endif
  return std::chrono::duration<double>(state_->times[to] - state_->times[from]).count();
}

void StreamClock::clear() {
  state_->size = 0;
  state_->times.clear();
}

}  // namespace ringtrain
