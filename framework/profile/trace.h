// The timeline of a run in Chrome's trace format (opens in Perfetto and chrome://tracing): one process for each data
// rank, with one thread for each sequence rank and another for its communication. A Span records the time between its
// constructor and destructor. Code that records holds a TraceTrack*, which is null if nothing is traced: one branch per
// span.
//
// A GPU runs behind the host. So the work of a rank's GPU has its own rows (framework/cuda/timeline.h), timed by the
// GPU's clock and converted to the host's; the rank's own row then shows when the host issued the work.
//
// Memory is bounded: a track holds a limited number of spans, allocated a block at a time. Spans that find it full are
// dropped and counted. A span takes its entry when it begins, so if a span is kept, all spans around it are too.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

namespace ringtrain {

class OutputFile;  // framework/output/output_file.h

/// A count or an index shown with a span; -1: not applicable and not shown. Its name outlives the trace (a literal).
struct TraceArgument {
  const char* name = nullptr;
  std::int64_t value = 0;
};

/// A recorded span.
struct TraceEntry {
  static constexpr std::size_t max_arguments = 5;
  static constexpr std::int64_t still_open = -1;
  const char* name = nullptr;
  const char* detail = nullptr;                       // additional description; may be null
  std::int64_t begin = still_open, end = still_open;  // nanoseconds since the trace began
  std::array<TraceArgument, max_arguments> arguments{};
};

/// Records spans a second time, by the clock of the device that does the work that they issue.
class SpanMirror {
 public:
  virtual ~SpanMirror() = default;
  /// Begins a span of the rank's work after all work that the device has received so far. Spans end in reverse order.
  virtual void begin(const char* name, const char* detail, std::initializer_list<TraceArgument> arguments) = 0;
  virtual void end() = 0;
  /// Begins a transfer at the device's current point when it is posted; it ends when it has been waited for. Returns
  /// the argument of end_transfer(); null if the transfer is not recorded.
  virtual TraceEntry* begin_transfer(const char* name, std::initializer_list<TraceArgument> arguments) = 0;
  virtual void end_transfer(TraceEntry* entry) = 0;
};

/// One row of the timeline. Used by one thread at a time: its rank's.
class TraceTrack {
 public:
  using Clock = std::chrono::steady_clock;
  using Entry = TraceEntry;
  static constexpr std::size_t block_spans = 4096;

  /// capacity: the most spans it keeps.
  TraceTrack(Clock::time_point origin, std::size_t capacity) : origin_(origin), capacity_(capacity) {}

  /// Begins a span. Returns its entry, to be passed to end(); null if the track is full or paused. name and detail must
  /// outlive the trace (literals).
  Entry* begin(const char* name, const char* detail, std::initializer_list<TraceArgument> arguments);
  void end(Entry* entry) {
    if (entry) entry->end = now();
    if (mirror_) mirror_->end();
  }
  /// Adds a span whose times the caller sets. A span without a beginning is not shown.
  Entry* add(const char* name, const char* detail, std::initializer_list<TraceArgument> arguments);
  /// From now on, spans are also recorded in the mirror; null: not any more. Spans of this track are then properly
  /// nested.
  void mirror(SpanMirror* mirror) { mirror_ = mirror; }
  SpanMirror* mirror() const { return mirror_; }
  /// A paused track records no new spans and counts none as dropped.
  void pause(bool paused) { paused_ = paused; }

  std::size_t size() const { return size_; }
  std::size_t dropped() const { return dropped_; }
  /// Returns the i-th span, in the order of beginnings.
  const Entry& operator[](std::size_t i) const { return blocks_[i / block_spans][i % block_spans]; }

  /// Returns nanoseconds since the trace began.
  std::int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - origin_).count();
  }

 private:
  Clock::time_point origin_;
  std::size_t capacity_, size_ = 0, dropped_ = 0;
  bool paused_ = false;
  SpanMirror* mirror_ = nullptr;
  std::vector<std::unique_ptr<Entry[]>> blocks_;  // entries do not move
};

/// Records a span on a track, if there is one, until the end of the scope.
class Span {
 public:
  Span(TraceTrack* track, const char* name, std::initializer_list<TraceArgument> arguments = {},
       const char* detail = nullptr) {
    if (track) [[unlikely]] {
      track_ = track;
      entry_ = track->begin(name, detail, arguments);
    }
  }
  ~Span() {
    if (track_) [[unlikely]]
      track_->end(entry_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  TraceTrack* track_ = nullptr;
  TraceTrack::Entry* entry_ = nullptr;
};

/// What one rank records: its own work and waits, properly nested; and its exchanges, which may overlap. The same for
/// its GPU by the GPU's clock, empty if there is none.
struct RankTrace {
  RankTrace(TraceTrack::Clock::time_point origin, std::size_t capacity)
      : work(origin, capacity),
        communication(origin, capacity),
        device_work(origin, capacity),
        device_communication(origin, capacity) {}
  TraceTrack work, communication, device_work, device_communication;
  void pause(bool paused) {
    for (TraceTrack* track : {&work, &communication, &device_work, &device_communication}) track->pause(paused);
  }
  /// Calls the mirror's begin_transfer for the rank's GPU; returns null without a GPU.
  TraceEntry* begin_transfer(const char* name, std::initializer_list<TraceArgument> arguments) {
    return work.mirror() ? work.mirror()->begin_transfer(name, arguments) : nullptr;
  }
  void end_transfer(TraceEntry* entry) {
    if (entry && work.mirror()) work.mirror()->end_transfer(entry);
  }
};

/// The tracks of all ranks of this process, and the file. Created before the ranks start; written after they have
/// ended.
class Trace {
 public:
  /// About 30 MiB per track when full.
  static constexpr std::size_t default_capacity = std::size_t{1} << 18;

  /// Rank r is sequence rank r % sequence of data rank r / sequence.
  Trace(int data, int sequence, std::size_t capacity = default_capacity);

  RankTrace& rank(int rank) { return *ranks_[rank]; }
  const RankTrace& rank(int rank) const { return *ranks_[rank]; }
  /// Returns how many spans found their track full, over all tracks.
  std::size_t dropped() const;

  /// Fills and publishes a file whose rules have the mark trace_file_head (trace_events.h). Spans that never ended
  /// (because of an error) end with the last one. Throws Error(usage) if the rules or the disk refuse it.
  void write(OutputFile& output) const;

 private:
  int sequence_;
  std::vector<std::unique_ptr<RankTrace>> ranks_;
};

/// Returns a row for each span such that spans of one row do not overlap: the first free row. Spans must be in the
/// order of their beginnings. (Exchanges overlap in time, but a viewer draws a row as a stack of calls.)
std::vector<int> rows_without_overlap(const std::vector<const TraceEntry*>& spans);

}  // namespace ringtrain
