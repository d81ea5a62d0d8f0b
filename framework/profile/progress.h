// A long task shows how far it is: on a terminal one line that is rewritten in place, and above it the same line from
// time to time for those who scroll back; in a pipe plain lines at a measured pace. Progress goes to stderr, so that
// stdout holds results alone. Also the formats of human sizes that all programs share. Used by one thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace ringtrain {

/// Returns bytes as "512 B", "1.5 KiB", "3.2 GiB".
std::string human_bytes(double bytes);
/// Returns a count as "950", "12.3K", "1.2M", "3.4G".
std::string human_count(double count);
/// Returns seconds as "0.4s", "12s", "3m05s", "2h03m", "4d02h".
std::string human_duration(double seconds);

/// What one line says. fields: what the task wants shown, e.g. "loss=2.31 lr=3.0e-04".
struct ProgressState {
  std::string task;  // "train", "evaluate", "prepare"
  std::int64_t done = 0, total = 0;
  std::string fields;
  double units_per_second = 0;  // 0: not shown
  std::string unit = "tokens";
  double seconds_left = -1;  // below 0: not known
};

/// Returns e.g. "train 120/600 (20%) loss=2.31 12.3K tokens/s 3m05s left", cut to width columns (0: whole).
std::string progress_line(const ProgressState& state, int width);

/// Returns units a second, or 0 (unknown) over less than 0.1 ms: a rate of the first microseconds says nothing.
double rate_over(double units, double seconds);

/// Returns whether a line stays on a terminal, and the next one begins below it, so long after the last that did and
/// with so large a share of the task done since: about twenty of a task, and one every ten minutes.
bool stays(double seconds, double share);

/// Whether a terminal shows what was, or only what is.
enum class ProgressHistory { none, kept };

class Progress {
 public:
  /// file: usually stderr. Whether it is a terminal is asked of it here.
  explicit Progress(std::string task, std::int64_t total, std::FILE* file = stderr,
                    ProgressHistory history = ProgressHistory::none);
  /// As finish().
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Tells that `done` of total are done and shows it, if it is time to: the first and the last always, in between ten
  /// times a second on a terminal and every five seconds in a pipe. units: done since this object was made, of which
  /// the rate is made. The time left follows from the pace since the first call.
  void update(std::int64_t done, const std::string& fields, double units, const std::string& unit = "tokens");
  /// Writes a whole line of its own above the progress line ("saved checkpoints/step-00000010").
  void log(const std::string& line);
  /// Ends the terminal's line, so that other output can follow; it no longer says how much time is left.
  void finish();

 private:
  void show(const ProgressState& state);

  std::string task_;
  std::int64_t total_;
  std::FILE* file_;
  bool terminal_;
  bool open_ = false;  // the terminal's cursor is behind a progress line
  ProgressHistory history_;
  ProgressState last_;  // what that line says
  double start_, first_time_ = -1, last_shown_ = -1, last_kept_ = 0;
  std::int64_t first_done_ = 0, kept_done_ = 0;
};

}  // namespace ringtrain
