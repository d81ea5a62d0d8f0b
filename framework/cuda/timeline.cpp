#include "framework/cuda/timeline.h"

#include <cmath>
#include <limits>
#include <utility>

namespace ringtrain::cuda {

Timeline::Timeline(cudaStream_t stream, RankTrace& trace)
    : stream_(stream), trace_(trace), reference_(Event::Timing::on) {
  check(cudaStreamSynchronize(stream_), "waiting for the GPU's work");
  // The host may be interrupted between two readings of its clock. Keep the event whose two readings are closest.
  constexpr int tries = 5;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < tries; ++i) {
    Event event(Event::Timing::on);
    const std::int64_t before = trace_.work.now();
    event.record(stream_);
    event.synchronize();
    const std::int64_t after = trace_.work.now();
    if (after - before >= shortest) continue;
    shortest = after - before;
    reference_time_ = before + shortest / 2;
    reference_ = std::move(event);
  }
  trace_.work.mirror(this);
}

Timeline::~Timeline() {
  trace_.work.mirror(nullptr);
}

void Timeline::begin(const char* name, const char* detail, std::initializer_list<TraceArgument> arguments) {
  TraceEntry* const entry = trace_.device_work.add(name, detail, arguments);
  open_.push_back(entry);
  if (entry) record(work_, stream_, entry->begin);
}

void Timeline::end() {
  if (open_.empty()) return;  // it began before this timeline
  TraceEntry* const entry = open_.back();
  open_.pop_back();
  if (entry) record(work_, stream_, entry->end);
}

TraceEntry* Timeline::begin_transfer(const char* name, std::initializer_list<TraceArgument> arguments) {
  TraceEntry* const entry = trace_.device_communication.add(name, nullptr, arguments);
  if (entry) record(work_, stream_, entry->begin);
  return entry;
}

void Timeline::end_transfer(TraceEntry* entry) {
  if (entry) record(work_, stream_, entry->end);
}

void Timeline::record(std::deque<TimedEvent>& events, cudaStream_t stream, std::int64_t& time) {
  events.push_back({Event(Event::Timing::on), &time});
  events.back().event.record(stream);
}

std::optional<Timeline::Last> Timeline::read(std::deque<TimedEvent>& events) {
  std::optional<Last> last;
  while (!events.empty()) {
    TimedEvent& timed = events.front();
    const auto seconds = timed.event.seconds_since(reference_);
    if (!seconds) break;
    *timed.time = reference_time_ + std::llround(*seconds * 1e9);
    last.emplace(std::move(timed.event), *timed.time);
    events.pop_front();
  }
  return last;
}

void Timeline::settle() {
  // All times that are read together use one reference, so rounding keeps their order. The reference is then replaced
  // by a later event, because a float of milliseconds becomes coarse. (The event of another stream may be older than
  // the reference; its time is then negative.)
  read(transfers_);
  if (auto last = read(work_)) {
    reference_ = std::move(last->event);
    reference_time_ = last->time;
  }
}

}  // namespace ringtrain::cuda
