// The rows of the timeline that show a GPU's own time: a rank's compute stream, and what other streams carry for it.
// Events stand around what a span gives to a stream; the time at which the GPU passed them is read where the host has
// waited for the compute stream anyway. So the rows cost events, and no wait.
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <optional>
#include <vector>

#include "framework/cuda/event.h"
#include "framework/profile/trace.h"

namespace ringtrain::cuda {

/// Used by the rank's thread alone.
class Timeline final : public SpanMirror {
 public:
  /// Records the spans of trace.work again, on trace.device_work. Waits for the stream once, for a moment that the
  /// GPU's clock and the host's both know. trace must outlive it.
  Timeline(cudaStream_t stream, RankTrace& trace);
  ~Timeline() override;
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  void begin(const char* name, const char* detail, std::initializer_list<TraceArgument> arguments) override;
  void end() override;
  TraceEntry* begin_transfer(const char* name, std::initializer_list<TraceArgument> arguments) override;
  void end_transfer(TraceEntry* entry) override;

  /// What give() gives to `carrier`, a stream of the same GPU, is a span of trace.device_communication.
  template <class Give>
  void transfer(cudaStream_t carrier, const char* name, std::initializer_list<TraceArgument> arguments,
                const Give& give) {
    TraceEntry* const entry = trace_.device_communication.add(name, nullptr, arguments);
    if (entry) record(transfers_, carrier, entry->begin);
    give();
    if (entry) record(transfers_, carrier, entry->end);
  }

  /// Reads the times of all that has passed.
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
  /// Reads events as far as they have passed. Returns the last of them, if there was any.
  std::optional<Last> read(std::deque<TimedEvent>& events);

  cudaStream_t stream_;
  RankTrace& trace_;
  std::vector<TraceEntry*> open_;            // spans of the rank's work; null: not recorded
  std::deque<TimedEvent> work_, transfers_;  // in the order in which they were recorded
  Event reference_;                          // the last moment of the compute stream that was read
  std::int64_t reference_time_ = 0;
};

}  // namespace ringtrain::cuda
