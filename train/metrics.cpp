#include "train/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

namespace ringtrain {

namespace {

std::string peak_json(const MemoryUse& peak) {
  std::string text = "{";
  for (int tag = 0; tag < tag_count; ++tag) {
    text += fmt::format("\"{}\":{},", name_of(static_cast<Tag>(tag)), peak[static_cast<Tag>(tag)]);
  }
  return text + fmt::format("\"total\":{}}}", peak.total);
}

/// Return a number with all its digits; JSON has no NaN and no infinity.
std::string number_json(double value) {
  return std::isfinite(value) ? fmt::format("{:.17g}", value) : "null";
}

/// Return UTC to the millisecond: "2026-11-22T13:04:05.678Z".
std::string time_text(WallClock::time_point time) {
  const auto since = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch());
  const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(since).count();
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, since.count() - seconds * 1000);
}

/// Return ,"name":value, or nothing of nothing.
std::string optional_json(const char* name, const std::optional<double>& value) {
  return value ? fmt::format(R"(,"{}":{:.6g})", name, *value) : "";
}

std::string peaks_json(const std::vector<MemoryUse>& ranks) {
  if (ranks.empty()) return "";
  std::vector<std::string> peaks;
  peaks.reserve(ranks.size());
  for (const MemoryUse& peak : ranks) peaks.push_back(peak_json(peak));
  return fmt::format(R"(,"peak_bytes":[{}])", fmt::join(peaks, ","));
}

}  // namespace

std::string metrics_line(const StepRecord& record) {
  return fmt::format(
      R"({{"kind":"train","step":{},"time":"{}","tokens":{},"loss":{},"grad_norm":{},"lr":{:.17g},"skipped_steps":{},)"
      R"({}{}"tokens_per_second":{:.6g},"seconds":{:.6g},"ring_wait_seconds":{:.6g}{}{}{},"samples":[{}]{}{}}})",
      record.step, time_text(record.time), record.tokens, number_json(record.loss), number_json(record.grad_norm),
      record.lr, record.skipped_steps, record.empty ? R"("empty":true,)" : "",
      record.loss_spike ? R"("loss_spike":true,)" : "", record.tokens_per_second, record.seconds,
      record.ring_wait_seconds, optional_json("mfu", record.mfu), optional_json("loss_z", record.loss_z),
      optional_json("grad_norm_z", record.grad_norm_z), fmt::join(record.samples, ","), peaks_json(record.peak),
      record.ring ? ",\"ring\":" + to_json(*record.ring) : "");
}

std::string metrics_line(std::int64_t step, WallClock::time_point time, const EvaluationSummary& summary) {
  nlohmann::ordered_json json;
  json["kind"] = "evaluation";
  json["step"] = step;
  json["time"] = time_text(time);
  json.update(evaluation_json(summary));
  return json.dump();
}

// A disk that fills up during a run is a save that failed; that the folder can be written was checked before.
MetricsFile::MetricsFile(const std::string& path, OnFailure on_failure, Warn warn, const std::string& tensorboard)
    : file_(File::append_to(path, ExitCode::checkpoint)), on_failure_(on_failure), warn_(std::move(warn)) {
  if (!tensorboard.empty()) events_.emplace(tensorboard, path);
}

void MetricsFile::write(const std::string& line) {
  waiting_ += line + "\n";
  try {
    append_waiting();
  } catch (const Error& error) {
    if (on_failure_ == OnFailure::stop || waiting_.size() > max_waiting) throw;
    if (!refused_) {
      warn_(fmt::format("warning: metrics wait in memory, and training goes on (checkpoint.on_failure: warn): {}",
                        error.what()));
    }
    refused_ = true;
    return;
  }
  if (refused_) warn_(fmt::format("{}: the lines that waited are written", file_.path()));
  refused_ = false;
}

void MetricsFile::flush() {
  append_waiting();
}

void MetricsFile::append_waiting() {
  if (waiting_.empty()) return;
  const std::int64_t end = file_.size();
  try {
    file_.write(waiting_);
  } catch (const Error&) {
    file_.truncate(end);  // a part of a line may stand there
    throw;
  }
  const std::string written = std::exchange(waiting_, "");
  if (!events_) return;
  std::istringstream lines(written);
  for (std::string line; std::getline(lines, line);) events_->add(line);
}

}  // namespace ringtrain
