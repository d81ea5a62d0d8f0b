#include "train/run/metrics_history.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "framework/storage/files.h"
#include "framework/storage/strict_json.h"
#include "train/run/metrics_lines.h"

namespace ringtrain {

namespace {

constexpr std::string_view heads[2] = {R"({"kind":"train","step":)", R"({"kind":"evaluation","step":)"};

/// Returns whether the whole text is JSON.
bool is_json(const std::string& text) {
  try {
    parse_strict_json(text);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

MetricsHistory::Line MetricsHistory::understand(const MetricsLine& raw) {
  Line line{.begin = raw.begin, .end = raw.end};
  if (const std::optional<MetricsEntry> entry = parse_metrics_line(raw.text)) {
    line.step = entry->step;
    line.kind = entry->evaluation ? Kind::evaluation : Kind::train;
    line.numbers = {.loss = number_in(entry->json, "loss"), .grad_norm = number_in(entry->json, "grad_norm")};
    return line;
  }
  if (raw.ended || raw.text.empty()) return line;
  for (const std::string_view head : heads) {
    if (head.starts_with(raw.text) || (raw.text.starts_with(head) && !is_json(raw.text))) line.kind = Kind::torn;
  }
  return line;
}

MetricsHistory MetricsHistory::read(const std::string& path) {
  MetricsHistory history;
  history.path_ = path;
  if (!path_exists(path)) return history;
  const File file = File::open(path, ExitCode::usage);
  history.bytes_ = file.size();
  read_metrics_lines(file, [&](const MetricsLine& raw) {
    history.lines_.push_back(understand(raw));
    history.ends_with_line_ = raw.ended;
  });
  return history;
}

bool MetricsHistory::is_foreign() const {
  return !lines_.empty() && std::ranges::all_of(lines_, [](const Line& line) { return line.kind == Kind::damaged; });
}

std::int64_t MetricsHistory::first_step() const {
  const auto first = std::ranges::find_if(lines_, [](const Line& line) { return line.step > 0; });
  return first == lines_.end() ? 0 : first->step;
}

std::int64_t MetricsHistory::last_step() const {
  std::int64_t last = 0;
  for (const Line& line : lines_) last = std::max(last, line.step);
  return last;
}

std::vector<StepReport> MetricsHistory::numbers_up_to(std::int64_t step, std::size_t count) const {
  std::vector<StepReport> numbers;
  std::size_t finite = 0;
  for (auto line = lines_.rbegin(); line != lines_.rend() && finite < count; ++line) {
    if (line->kind != Kind::train || line->step > step) continue;
    numbers.push_back(line->numbers);
    if (std::isfinite(line->numbers.loss) && std::isfinite(line->numbers.grad_norm)) ++finite;
  }
  std::ranges::reverse(numbers);
  return numbers;
}

bool MetricsHistory::holds_evaluation(std::int64_t step) const {
  return std::ranges::any_of(lines_,
                             [&](const Line& line) { return line.kind == Kind::evaluation && line.step == step; });
}

MetricsHistory::Cut MetricsHistory::cut(std::int64_t step) const {
  Cut cut;
  std::vector<Line> kept;
  std::int64_t number = 0;
  for (const Line& line : lines_) {
    ++number;
    if (line.kind == Kind::torn || line.step > step) {
      cut.bytes += line.end - line.begin;
      continue;
    }
    if (line.kind == Kind::damaged && cut.damaged++ == 0) cut.first_damaged = number;
    kept.push_back(line);
  }
  const bool whole_lines = kept.empty() || ends_with_line_ || kept.back().end != bytes_;
  if (cut.bytes == 0 && whole_lines) return cut;
  const File file = File::open(path_, ExitCode::usage);
  std::string content(static_cast<std::size_t>(bytes_ - cut.bytes), '\0');
  std::int64_t filled = 0;
  for (const Line& line : kept) {
    const std::int64_t bytes = line.end - line.begin;
    file.read_at(line.begin, content.data() + filled, static_cast<std::size_t>(bytes));
    filled += bytes;
  }
  if (!whole_lines) content += '\n';
  write_file(path_, content, ExitCode::usage);
  return cut;
}

}  // namespace ringtrain
