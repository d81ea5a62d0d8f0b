// Shows the progress of a long task. On a terminal, one line is rewritten in place, and copies of it stay above from
// time to time for people who scroll back; in a pipe, plain lines are written every few seconds. Progress goes to
// stderr, so stdout holds only results. This file also has the formats of numbers that all programs share. Used by one
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

namespace ringtrain {

/// Returns bytes as "512 B", "1.5 KiB", "3.2 GiB".
std::string human_bytes(double bytes);
/// Returns a count as "950", "12.3K", "1.2M", "3.4G".
std::string human_count(double count);
/// Returns seconds as "0.4s", "12s", "3m05s", "2h03m", "4d02h".
std::string human_duration(double seconds);

/// The content of one line. fields: additional text of the task, e.g. "loss=2.31 lr=3.0e-04".
struct ProgressState {
  std::string task;  // "train", "evaluate", "prepare"
  std::int64_t done = 0, total = 0;
  std::string fields;
  double units_per_second = 0;  // 0: not shown
  std::string unit = "tokens";
  double seconds_left = -1;  // negative: unknown
};

/// Returns e.g. "train 120/600 (20%) loss=2.31 12.3K tokens/s 3m05s left".
std::string progress_line(const ProgressState& state);

/// Returns units per second, or 0 (unknown) for less than 0.1 ms: a rate over the first microseconds means nothing.
double rate_over(double units, double seconds);

/// Returns whether a line stays on a terminal and the next one begins below it, given the seconds and the share of the
/// task since the last line that stayed: about twenty lines per task, and one every ten minutes.
bool stays(double seconds, double share);

/// Whether a terminal keeps earlier lines or shows only the current one.
enum class ProgressHistory { none, kept };

class Progress {
 public:
  /// file: usually stderr. The constructor checks whether it is a terminal.
  explicit Progress(std::string task, std::int64_t total, std::FILE* file = stderr,
                    ProgressHistory history = ProgressHistory::none);
  /// Calls finish().
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Reports that `done` of total are done, and shows it when it is due: always the first and the last, and in between
  /// ten times a second on a terminal and every five seconds in a pipe. units: the number done since this object was
  /// made, from which the rate is computed. The time left is computed from the rate since the first call.
  void update(std::int64_t done, const std::string& fields, double units, const std::string& unit = "tokens");
  /// Writes a separate whole line above the progress line ("saved checkpoints/step-00000010").
  void log(const std::string& line);
  /// Calls `write`, whose whole lines, to any stream of the terminal, appear above the progress line.
  void above(const std::function<void()>& write);
  /// Ends the terminal's line, so that other output can follow; the line no longer shows the time left.
  void finish();

 private:
  void show(const ProgressState& state);

  std::string task_;
  std::int64_t total_;
  std::FILE* file_;
  bool terminal_;
  bool open_ = false;  // the terminal's cursor is at the end of a progress line
  ProgressHistory history_;
  ProgressState last_;  // the state that this line shows
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double first_time_ = -1, last_shown_ = -1, last_kept_ = 0;  // seconds since start_
  std::int64_t first_done_ = 0, kept_done_ = 0;
};

}  // namespace ringtrain
