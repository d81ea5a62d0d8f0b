#include "framework/profile/trace.h"

#include <algorithm>

namespace ringtrain {

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
