#include "train/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace ringtrain {

namespace {

std::string peak_json(const MemoryUse& peak) {
  std::string text = "{";
  for (int tag = 0; tag < tag_count; ++tag) {
    text += fmt::format("\"{}\":{},", name_of(static_cast<Tag>(tag)), peak[static_cast<Tag>(tag)]);
  }
  return text + fmt::format("\"total\":{}}}", peak.total);
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
  for (const MemoryUse& peak : record.peak) peaks.push_back(peak_json(peak));
  return fmt::format(
      R"({{"kind":"train","step":{},"tokens":{},"loss":{:.17g},"grad_norm":{:.17g},"lr":{:.17g},)"
      R"("tokens_per_second":{:.6g},"seconds":{:.6g},"ring_wait_seconds":{:.6g},"samples":[{}],"peak_bytes":[{}]}})",
      record.step, record.tokens, record.loss, record.grad_norm, record.lr, record.tokens_per_second, record.seconds,
      record.ring_wait_seconds, fmt::join(record.samples, ","), fmt::join(peaks, ","));
}

std::string metrics_line(std::int64_t step, const EvaluationSummary& summary) {
  nlohmann::ordered_json json;
  json["kind"] = "evaluation";
  json["step"] = step;
  json.update(evaluation_json(summary));
  return json.dump();
}

// A disk that fills up during a run is a save that failed; that the folder can be written was checked before.
MetricsFile::MetricsFile(const std::string& path) : file_(File::append_to(path, ExitCode::checkpoint)) {}

void MetricsFile::write(const std::string& line) {
  file_.write(line + "\n");
}

void MetricsFile::sync() {
  file_.sync();
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
