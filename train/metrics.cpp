#include "train/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
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

/// Return the step that a whole line speaks of, -1 if it is no such line.
std::int64_t step_of(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return -1;
  return json["step"].get<std::int64_t>();
}

}  // namespace

std::string metrics_line(const StepRecord& record) {
  std::vector<std::string> peaks;
  peaks.reserve(record.peak.size());
  for (const MemoryUse& peak : record.peak) peaks.push_back(peak_json(peak));
  return fmt::format(
      R"({{"kind":"train","step":{},"tokens":{},"loss":{},"grad_norm":{},"lr":{:.17g},"skipped_steps":{},)"
      R"({}"tokens_per_second":{:.6g},"seconds":{:.6g},"ring_wait_seconds":{:.6g},"samples":[{}],"peak_bytes":[{}]{}}})",
      record.step, record.tokens, number_json(record.loss), number_json(record.grad_norm), record.lr,
      record.skipped_steps, record.loss_spike ? R"("loss_spike":true,)" : "", record.tokens_per_second, record.seconds,
      record.ring_wait_seconds, fmt::join(record.samples, ","), fmt::join(peaks, ","),
      record.ring ? ",\"ring\":" + to_json(*record.ring) : "");
}

std::string metrics_line(std::int64_t step, const EvaluationSummary& summary) {
  nlohmann::ordered_json json;
  json["kind"] = "evaluation";
  json["step"] = step;
  json.update(evaluation_json(summary));
  return json.dump();
}

// A disk that fills up during a run is a save that failed; that the folder can be written was checked before.
MetricsFile::MetricsFile(const std::string& path, OnFailure on_failure, Warn warn)
    : file_(File::append_to(path, ExitCode::checkpoint)), on_failure_(on_failure), warn_(std::move(warn)) {}

void MetricsFile::write(const std::string& line) {
  waiting_ += line + "\n";
  try {
    append_waiting();
  } catch (const Error& error) {
    if (on_failure_ == OnFailure::stop || waiting_.size() > most_waiting) throw;
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
  waiting_.clear();
}

bool holds_evaluation(const std::string& path, std::int64_t step) {
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line) && !file.eof();) {  // eof: the last line has no end
    if (line.starts_with(R"({"kind":"evaluation")") && step_of(line) == step) return true;
  }
  return false;
}

std::int64_t cut_metrics(const std::string& path, std::int64_t step) {
  if (!path_exists(path)) return 0;
  std::int64_t keep = 0;
  {
    std::ifstream file(path, std::ios::binary);
    for (std::string line; std::getline(file, line) && !file.eof();) {  // eof: the last line has no end
      const std::int64_t at = step_of(line);
      if (at < 0 || at > step) break;
      keep += static_cast<std::int64_t>(line.size()) + 1;
    }
  }
  const std::int64_t size = file_size(path, ExitCode::usage);
  if (keep == size) return 0;
  File file = File::open_for_update(path, ExitCode::usage);
  file.truncate(keep);
  file.sync();
  file.close();
  return size - keep;
}

}  // namespace ringtrain
