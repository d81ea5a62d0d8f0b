#include "framework/profile/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "framework/profile/clock.h"
#include "framework/standard_streams.h"
#include "framework/text/utf8.h"

namespace ringtrain {

namespace {

constexpr double terminal_pace = 0.1, pipe_pace = 5.0;  // seconds between lines
constexpr double shortest_of_a_rate = 1e-4;             // seconds; a rate over less means nothing

/// Returns the number of columns of a terminal, or 80 if it does not report it.
int columns(std::FILE* file) {
  winsize size{};
  return ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// Returns value with about three digits: "1.5", "12.3", "123".
std::string three_digits(double value) {
  return value < 99.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

/// Returns a number in the first of the units in which it is below `most`; each unit is `times` the previous one.
std::pair<double, const char*> scaled(double number, double times, double most, std::span<const char* const> units) {
  std::size_t unit = 0;
  number /= times;
  for (; number >= most && unit + 1 < units.size(); ++unit) number /= times;
  return {number, units[unit]};
}

}  // namespace

std::string human_bytes(double bytes) {
  if (bytes < 1023.5) return fmt::format("{:.0f} B", bytes);
  const auto [number, unit] = scaled(bytes, 1024, 1023.5, std::array{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"});
  return fmt::format("{} {}", three_digits(number), unit);
}

std::string human_count(double count) {
  if (count < 9.95 && count != std::floor(count)) return fmt::format("{:.1f}", count);
  if (count < 999.5) return fmt::format("{:.0f}", count);
  const auto [number, unit] = scaled(count, 1000, 999.5, std::array{"K", "M", "G", "T"});
  return three_digits(number) + unit;
}

std::string human_duration(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f}s", std::max(seconds, 0.0));
  constexpr double longest = 1e12;  // beyond it the digits mean nothing
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, longest)));
  const std::int64_t minutes = whole / 60, hours = minutes / 60, days = hours / 24;
  if (minutes == 0) return fmt::format("{}s", whole);
  if (hours == 0) return fmt::format("{}m{:02}s", minutes, whole % 60);
  if (days == 0) return fmt::format("{}h{:02}m", hours, minutes % 60);
  return fmt::format("{}d{:02}h", days, hours % 24);
}

std::string progress_line(const ProgressState& state) {
  const double part = state.total > 0 ? static_cast<double>(state.done) / static_cast<double>(state.total) : 1;
  std::string line = fmt::format("{} {}/{} ({:.0f}%)", state.task, state.done, state.total, std::floor(part * 100));
  if (!state.fields.empty()) line += " " + state.fields;
  if (state.units_per_second > 0) line += fmt::format(" {} {}/s", human_count(state.units_per_second), state.unit);
  if (state.seconds_left >= 0) line += fmt::format(" {} left", human_duration(state.seconds_left));
  return line;
}

double rate_over(double units, double seconds) {
  return seconds >= shortest_of_a_rate ? units / seconds : 0;
}

bool stays(double seconds, double share) {
  constexpr double longest = 600, shortest = 5, large = 0.05;
  return seconds >= longest || (seconds >= shortest && share >= large);
}

Progress::Progress(std::string task, std::int64_t total, std::FILE* file, ProgressHistory history)
    : task_(std::move(task)), total_(total), file_(file), terminal_(isatty(fileno(file)) == 1), history_(history) {}

void Progress::update(std::int64_t done, const std::string& fields, double units, const std::string& unit) {
  const double time = seconds_since(start_);
  const bool first = first_time_ < 0, last = done >= total_;
  if (first) {
    first_time_ = time;
    first_done_ = done;
  }
  if (!first && !last && time - last_shown_ < (terminal_ ? terminal_pace : pipe_pace)) return;
  last_shown_ = time;
  ProgressState state{
      .task = task_, .done = done, .total = total_, .fields = fields, .units_per_second = 0, .unit = unit};
  state.units_per_second = rate_over(units, time);
  // The rate is measured from the first call on: earlier work (a warm-up, a resumed run's steps) does not count.
  const std::int64_t paced = done - first_done_;
  if (!last && paced > 0) {
    state.seconds_left = (time - first_time_) / static_cast<double>(paced) * static_cast<double>(total_ - done);
  }
  show(state);
  const double share = static_cast<double>(done - kept_done_) / static_cast<double>(std::max<std::int64_t>(total_, 1));
  if (!open_ || last || history_ == ProgressHistory::none || !stays(time - last_kept_, share)) return;
  write_control(file_, "\n");
  last_kept_ = time;
  kept_done_ = done;
}

void Progress::show(const ProgressState& state) {
  if (!terminal_) return write_message(file_, progress_line(state) + "\n");
  last_ = state;
  std::string line = visible(progress_line(state));
  line.resize(code_point_border(line, static_cast<std::size_t>(columns(file_) - 1)));  // in the last column it may wrap
  write_control(file_, fmt::format("\r{}\x1b[K", line));  // also erases the rest of a longer previous line
  open_ = true;
}

void Progress::log(const std::string& line) {
  above([&] { write_message(file_, line + "\n"); });
}

void Progress::above(const std::function<void()>& write) {
  if (open_) write_control(file_, "\r\x1b[K");
  write();
  if (open_) show(last_);
}

void Progress::finish() {
  if (!open_) return;
  last_.seconds_left = -1;
  show(last_);
  open_ = false;
  write_message(file_, "\n");
}

}  // namespace ringtrain
