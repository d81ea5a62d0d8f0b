// The text of a timeline's file: its beginning, the events of each rank, and its end. Each process writes the text of
// its own ranks, by the one clock of the file.
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

/// The beginning of each file, by which it is recognized.
inline constexpr std::string_view trace_file_head = R"({"writer":"ringtrain","displayTimeUnit":"ms","traceEvents":[)";

/// The difference between a process's clock and that of rank 0, which the file's times use.
struct TraceClock {
  int rank = 0;
  std::int64_t offset = 0, error = 0;  // nanoseconds; see ClockMapping
};
/// Returns the end of each file. dropped: the number of spans that were not kept. clocks: empty if all ranks have one
/// clock.
std::string trace_file_end(std::size_t dropped, const std::vector<TraceClock>& clocks);

/// Collects the events of ranks as text and passes them on in pieces, because a timeline is too large to hold twice.
class TraceEvents {
 public:
  using Sink = std::function<void(std::string_view piece)>;
  /// A rank's position: sequence rank `rank % sequence` of data rank `rank / sequence`.
  struct RankPosition {
    int rank, sequence;
  };

  /// begins: whether the file's list is still empty.
  explicit TraceEvents(Sink sink, bool begins = true) : sink_(std::move(sink)), first_(begins) {}

  /// Adds all rows of a rank, with times converted by `clock`. Spans that never ended (because of an error) end with
  /// the rank's last one.
  void add(const RankTrace& rank, RankPosition position, const ClockMapping& clock = {});
  /// Passes on the collected text.
  void flush();

 private:
  void separate();
  void name(const char* what, int process, int row, const std::string& value);
  void span(const TraceEntry& entry, std::int64_t begin, std::int64_t end, int process, int row);

  Sink sink_;
  std::string text_;
  bool first_;
};

/// Passes the text of a whole timeline to a sink: its beginning, the events that add() adds, and its end.
void write_timeline(const TraceEvents::Sink& sink, const std::function<void(TraceEvents&)>& add, std::size_t dropped,
                    const std::vector<TraceClock>& clocks = {});

}  // namespace ringtrain
