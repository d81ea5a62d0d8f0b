// The rows of the timeline that show a GPU's own time: a rank's compute stream, and transfers on other streams for it.
// An event is recorded before and after the work that a span gives to a stream. The times at which the GPU passed the
// events are read after the host has waited for the compute stream anyway. So the rows cost events, but no wait.
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <optional>
#include <vector>

#include "framework/cuda/event.h"
#include "framework/profile/trace.h"

namespace ringtrain::cuda {

/// Used only by the rank's thread.
class Timeline final : public SpanMirror {
 public:
  /// Records the spans of trace.work a second time, on trace.device_work. Waits for the stream once, for a moment that
  /// both the GPU's clock and the host's clock measure. trace must outlive it.
  Timeline(cudaStream_t stream, RankTrace& trace);
  ~Timeline() override;
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  void begin(const char* name, const char* detail, std::initializer_list<TraceArgument> arguments) override;
  void end() override;
  TraceEntry* begin_transfer(const char* name, std::initializer_list<TraceArgument> arguments) override;
  void end_transfer(TraceEntry* entry) override;

  /// The work that give() gives to `carrier`, a stream of the same GPU, becomes a span of trace.device_communication.
  template <class Give>
  void transfer(cudaStream_t carrier, const char* name, std::initializer_list<TraceArgument> arguments,
                const Give& give) {
    TraceEntry* const entry = trace_.device_communication.add(name, nullptr, arguments);
    if (entry) record(transfers_, carrier, entry->begin);
    give();
    if (entry) record(transfers_, carrier, entry->end);
  }

  /// Reads the times of all events that have passed.
  void settle();

 private:
  struct TimedEvent {
    Event event;
    std::int64_t* time;
  };
  void record(std::deque<TimedEvent>& events, cudaStream_t stream, std::int64_t& time);
  struct Last {
    Event event;
    std::int64_t time;
  };
  /// Reads events as far as they have passed. Returns the last of them, if there is one.
  std::optional<Last> read(std::deque<TimedEvent>& events);

  cudaStream_t stream_;
  RankTrace& trace_;
  std::vector<TraceEntry*> open_;            // spans of the rank's work; null: not recorded
  std::deque<TimedEvent> work_, transfers_;  // in the order in which they were recorded
  Event reference_;                          // the last event of the compute stream that was read
  std::int64_t reference_time_ = 0;
};

}  // namespace ringtrain::cuda
