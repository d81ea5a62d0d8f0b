#include "framework/profile/trace_events.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "framework/output/output_file.h"

namespace ringtrain {

namespace {

/// Rows of a rank are numbered from (rank + 1) * rows_per_rank, and those of its GPU from device_rows above that. No
/// row has number 0, which viewers take for the kernel's idle thread, and no number is used twice.
constexpr int rows_per_rank = 1000, device_rows = 500;

constexpr std::size_t piece = std::size_t{1} << 20;

template <class... Args>
void append(std::string& text, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
}

/// Returns the latest time in a track.
std::int64_t last_moment(const TraceTrack& track) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < track.size(); ++i) last = std::max({last, track[i].begin, track[i].end});
  return last;
}

/// Returns the spans that have a beginning, in its order. Of spans with the same beginning, those that were recorded
/// first enclose the others.
std::vector<const TraceEntry*> spans_of(const TraceTrack& track) {
  std::vector<const TraceEntry*> spans;
  for (std::size_t i = 0; i < track.size(); ++i) {
    if (track[i].begin != TraceEntry::still_open) spans.push_back(&track[i]);
  }
  std::ranges::stable_sort(spans, {}, &TraceEntry::begin);
  return spans;
}

}  // namespace

std::string trace_file_end(std::size_t dropped, const std::vector<TraceClock>& clocks) {
  std::string text;
  append(text, "],\"otherData\":{{\"dropped_spans\":{}", dropped);
  if (!clocks.empty()) text += ",\"clocks\":[";
  for (std::size_t i = 0; i < clocks.size(); ++i) {
    append(text, R"({}{{"rank":{},"offset_microseconds":{:.3f},"error_microseconds":{:.3f}}})", i == 0 ? "" : ",",
           clocks[i].rank, static_cast<double>(clocks[i].offset) * 1e-3, static_cast<double>(clocks[i].error) * 1e-3);
  }
  if (!clocks.empty()) text += "]";
  return text + "}}\n";
}

void TraceEvents::add(const RankTrace& rank, RankPosition position, const ClockMapping& clock) {
  const int data = position.rank / position.sequence, sequence = position.rank % position.sequence, process = data + 1;
  const int row = (position.rank + 1) * rows_per_rank;
  if (sequence == 0) name("process_name", process, row, fmt::format("data rank {}", data));
  std::int64_t last = 0;
  for (const TraceTrack* track : {&rank.work, &rank.communication, &rank.device_work, &rank.device_communication}) {
    last = std::max(last, last_moment(*track));
  }
  const auto write = [&](const TraceEntry& entry, int to) {
    span(entry, clock(entry.begin), clock(entry.end == TraceEntry::still_open ? last : entry.end), process, to);
  };
  const auto write_nested = [&](const TraceTrack& track, int to, const std::string& row_name) {
    name("thread_name", process, to, row_name);
    for (const TraceEntry* entry : spans_of(track)) write(*entry, to);
  };
  const auto write_overlapping = [&](const TraceTrack& track, int first, const std::string& row_name) {
    const std::vector<const TraceEntry*> spans = spans_of(track);
    const std::vector<int> rows = rows_without_overlap(spans);
    for (int index = 0; index <= (rows.empty() ? -1 : *std::max_element(rows.begin(), rows.end())); ++index) {
      name("thread_name", process, first + index, row_name + (index ? fmt::format(" {}", index + 1) : ""));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) write(*spans[i], first + rows[i]);
  };
  const std::string rank_name = fmt::format("sequence rank {}", sequence);
  write_nested(rank.work, row, rank_name);
  write_overlapping(rank.communication, row + 1, rank_name + " communication");
  if (rank.device_work.size() > 0) write_nested(rank.device_work, row + device_rows, rank_name + " GPU");
  write_overlapping(rank.device_communication, row + device_rows + 1, rank_name + " GPU communication");
}

void TraceEvents::flush() {
  if (!text_.empty()) sink_(text_);
  text_.clear();
}

void TraceEvents::separate() {
  text_ += first_ ? "\n" : ",\n";
  first_ = false;
}

/// Names a process or a row; rows are listed in the order of their numbers.
void TraceEvents::name(const char* what, int process, int row, const std::string& value) {
  separate();
  append(text_, R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":"{}"}}}})", what, process, row, value);
  separate();
  append(text_, R"({{"ph":"M","name":"{}_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
         std::string_view(what).substr(0, std::string_view(what).find('_')), process, row, row);
}

void TraceEvents::span(const TraceEntry& entry, std::int64_t begin, std::int64_t end, int process, int row) {
  separate();
  append(text_, R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{}.{:03},"dur":{}.{:03},"args":{{)", entry.name,
         process, row, begin / 1000, begin % 1000, (end - begin) / 1000, (end - begin) % 1000);
  if (entry.detail) append(text_, R"("for":"{}")", entry.detail);
  const char* comma = entry.detail ? "," : "";
  for (const TraceArgument& argument : entry.arguments) {
    if (!argument.name) break;
    if (argument.value == -1) continue;
    append(text_, R"({}"{}":{})", comma, argument.name, argument.value);
    comma = ",";
  }
  text_ += "}}";
  if (text_.size() > piece) flush();
}

// Writes the file of ranks that share one clock.

void write_timeline(const TraceEvents::Sink& sink, const std::function<void(TraceEvents&)>& add, std::size_t dropped,
                    const std::vector<TraceClock>& clocks) {
  sink(trace_file_head);
  TraceEvents events(sink);
  add(events);
  events.flush();
  sink(trace_file_end(dropped, clocks));
}

void Trace::write(OutputFile& output) const {
  const auto add = [&](TraceEvents& events) {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) events.add(*ranks_[rank], {rank, sequence_});
  };
  write_timeline([&](std::string_view text) { output.file().write(text); }, add, dropped());
  output.publish();
}

}  // namespace ringtrain
