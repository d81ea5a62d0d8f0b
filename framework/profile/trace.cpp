#include "framework/profile/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "framework/error.h"

namespace ringtrain {

namespace {

/// Rows of a rank have the numbers from (rank + 1) * rows_per_rank on, those of its GPU from device_rows further on. No
/// number is 0, which viewers take for the kernel's idle thread, and none stands for two rows.
constexpr int rows_per_rank = 1000, device_rows = 500;

/// How each file begins, and by what it is known again.
constexpr std::string_view header = R"({"writer":"ringtrain","displayTimeUnit":"ms","traceEvents":[)";

/// Collects the events of a file and hands them on in pieces: a trace is larger than one would like to hold twice.
class EventWriter {
 public:
  explicit EventWriter(File& file) : file_(file), text_(header) {}

  /// Names a process or a row; rows are listed in the order of their numbers.
  void name(const char* what, int process, int row, const std::string& value) {
    separate();
    append(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":"{}"}}}})", what, process, row, value);
    separate();
    append(R"({{"ph":"M","name":"{}_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
           std::string_view(what).substr(0, std::string_view(what).find('_')), process, row, row);
  }

  void span(const TraceEntry& entry, std::int64_t end, int process, int row) {
    separate();
    append(R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{}.{:03},"dur":{}.{:03},"args":{{)", entry.name, process,
           row, entry.begin / 1000, entry.begin % 1000, (end - entry.begin) / 1000, (end - entry.begin) % 1000);
    const char* comma = "";
    if (entry.detail) {
      append(R"("for":"{}")", entry.detail);
      comma = ",";
    }
    for (const TraceArgument& argument : entry.arguments) {
      if (!argument.name) break;
      if (argument.value == -1) continue;
      append(R"({}"{}":{})", comma, argument.name, argument.value);
      comma = ",";
    }
    text_ += "}}";
    if (text_.size() > piece) flush();
  }

  void finish(std::size_t dropped) {
    append("],\"otherData\":{{\"dropped_spans\":{}}}}}\n", dropped);
    flush();
  }

 private:
  static constexpr std::size_t piece = std::size_t{1} << 20;

  void separate() {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
  }
  template <class... Args>
  void append(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  void flush() {
    file_.write(text_);
    text_.clear();
  }

  File& file_;
  std::string text_;
  bool first_ = true;
};

/// Returns the last moment that a track knows of.
std::int64_t last_moment(const TraceTrack& track) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < track.size(); ++i) last = std::max({last, track[i].begin, track[i].end});
  return last;
}

/// Returns the spans that have a beginning, in the order of those. Of one beginning, those that were recorded first are
/// around the others.
std::vector<const TraceEntry*> spans_of(const TraceTrack& track) {
  std::vector<const TraceEntry*> spans;
  for (std::size_t i = 0; i < track.size(); ++i) {
    if (track[i].begin != TraceEntry::still_open) spans.push_back(&track[i]);
  }
  std::ranges::stable_sort(spans, {}, &TraceEntry::begin);
  return spans;
}

}  // namespace

TraceEntry* TraceTrack::begin(const char* name, const char* detail, std::initializer_list<TraceArgument> arguments) {
  if (mirror_) mirror_->begin(name, detail, arguments);
  Entry* const entry = add(name, detail, arguments);
  if (entry) entry->begin = now();
  return entry;
}

TraceEntry* TraceTrack::add(const char* name, const char* detail, std::initializer_list<TraceArgument> arguments) {
  if (paused_) return nullptr;
  if (size_ == capacity_) {
    ++dropped_;
    return nullptr;
  }
  if (size_ % block_spans == 0) blocks_.push_back(std::make_unique<Entry[]>(std::min(block_spans, capacity_ - size_)));
  Entry& entry = blocks_.back()[size_++ % block_spans];
  entry.name = name;
  entry.detail = detail;
  std::copy_n(arguments.begin(), std::min(arguments.size(), TraceEntry::max_arguments), entry.arguments.begin());
  return &entry;
}

Trace::Trace(int data, int sequence, std::size_t capacity) : sequence_(sequence) {
  const TraceTrack::Clock::time_point origin = TraceTrack::Clock::now();
  for (int rank = 0; rank < data * sequence; ++rank) {
    ranks_.push_back(std::make_unique<RankTrace>(origin, capacity));
  }
}

std::size_t Trace::dropped() const {
  std::size_t sum = 0;
  for (const auto& rank : ranks_) {
    sum += rank->work.dropped() + rank->communication.dropped();
    sum += rank->device_work.dropped() + rank->device_communication.dropped();
  }
  return sum;
}

OutputMark Trace::mark() {
  return OutputMark::begins(header);
}

void Trace::write(OutputFile& output) const {
  write_events(output.file());
  output.publish();
}

void Trace::write_events(File& file) const {
  EventWriter writer(file);
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    const RankTrace& own = *ranks_[rank];
    const int data = rank / sequence_, sequence = rank % sequence_, process = data + 1;
    const int row = (rank + 1) * rows_per_rank;
    if (sequence == 0) writer.name("process_name", process, row, fmt::format("data rank {}", data));
    std::int64_t last = 0;
    for (const TraceTrack* track : {&own.work, &own.communication, &own.device_work, &own.device_communication}) {
      last = std::max(last, last_moment(*track));
    }
    const auto write = [&](const TraceEntry& span, int to) {
      writer.span(span, span.end == TraceEntry::still_open ? last : span.end, process, to);
    };
    const auto write_nested = [&](const TraceTrack& track, int to, const std::string& name) {
      writer.name("thread_name", process, to, name);
      for (const TraceEntry* span : spans_of(track)) write(*span, to);
    };
    const auto write_overlapping = [&](const TraceTrack& track, int first, const std::string& name) {
      const std::vector<const TraceEntry*> spans = spans_of(track);
      const std::vector<int> rows = rows_without_overlap(spans);
      for (int more = 0; more <= (rows.empty() ? -1 : *std::max_element(rows.begin(), rows.end())); ++more) {
        writer.name("thread_name", process, first + more, name + (more ? fmt::format(" {}", more + 1) : ""));
      }
      for (std::size_t i = 0; i < rows.size(); ++i) write(*spans[i], first + rows[i]);
    };
    const std::string name = fmt::format("sequence rank {}", sequence);
    write_nested(own.work, row, name);
    write_overlapping(own.communication, row + 1, name + " communication");
    if (own.device_work.size() > 0) write_nested(own.device_work, row + device_rows, name + " GPU");
    write_overlapping(own.device_communication, row + device_rows + 1, name + " GPU communication");
  }
  writer.finish(dropped());
}

std::vector<int> rows_without_overlap(const std::vector<const TraceEntry*>& spans) {
  std::vector<int> rows;
  std::vector<std::int64_t> free_from;  // by row
  for (const TraceEntry* span : spans) {
    const auto free =
        std::find_if(free_from.begin(), free_from.end(), [&](std::int64_t from) { return from <= span->begin; });
    rows.push_back(static_cast<int>(free - free_from.begin()));
    const std::int64_t end = span->end == TraceEntry::still_open ? INT64_MAX : span->end;
    if (free == free_from.end()) {
      free_from.push_back(end);
    } else {
      *free = end;
    }
  }
  return rows;
}

}  // namespace ringtrain
