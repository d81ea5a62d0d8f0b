// The text of a timeline's file: its beginning, the events of each rank, its end. Each process makes the text of its
// own ranks, by the one clock of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/profile/clock_mapping.h"
#include "framework/profile/trace.h"

namespace ringtrain {

/// How each file begins, and by what it is known again.
inline constexpr std::string_view trace_file_head = R"({"writer":"ringtrain","displayTimeUnit":"ms","traceEvents":[)";

/// How a process's clock stood to that of rank 0, by which the file's times are.
struct TraceClock {
  int rank = 0;
  std::int64_t offset = 0, error = 0;  // nanoseconds; see ClockMapping
};
/// Returns how each file ends. dropped: spans that were not kept. clocks: none where all ranks have one clock.
std::string trace_file_end(std::size_t dropped, const std::vector<TraceClock>& clocks);

/// Collects the events of ranks as text and hands them on in pieces: a timeline is larger than one would like to hold
/// twice.
class TraceEvents {
 public:
  using Sink = std::function<void(std::string_view piece)>;
  /// Where a rank stands: sequence rank `rank % sequence` of data rank `rank / sequence`.
  struct RankPosition {
    int rank, sequence;
  };

  /// begins: whether nothing stands in the file's list yet.
  explicit TraceEvents(Sink sink, bool begins = true) : sink_(std::move(sink)), first_(begins) {}

  /// Adds all rows of a rank, by the clock that `clock` maps to. Spans that never ended (an error unwound no further)
  /// end with the rank's last one.
  void add(const RankTrace& rank, RankPosition position, const ClockMapping& clock = {});
  /// Hands on what is left.
  void flush();

 private:
  void separate();
  void name(const char* what, int process, int row, const std::string& value);
  void span(const TraceEntry& entry, std::int64_t begin, std::int64_t end, int process, int row);

  Sink sink_;
  std::string text_;
  bool first_;
};

/// Hands the text of a whole timeline to a sink: its head, what add() puts into it, its end.
void write_timeline(const TraceEvents::Sink& sink, const std::function<void(TraceEvents&)>& add, std::size_t dropped,
                    const std::vector<TraceClock>& clocks = {});

}  // namespace ringtrain
