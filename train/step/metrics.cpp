#include "train/step/metrics.h"

#include <fmt/chrono.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

nlohmann::ordered_json peak_json(const MemoryUse& peak) {
  nlohmann::ordered_json json;
  for (int tag = 0; tag < tag_count; ++tag) json[name_of(static_cast<Tag>(tag))] = peak[static_cast<Tag>(tag)];
  json["total"] = peak.total;
  return json;
}

/// Returns a number with 17 significant digits, which scripts compare as text; JSON has no NaN or infinity.
std::string all_digits(double value) {
  return std::isfinite(value) ? fmt::format("{:.17g}", value) : "null";
}

/// Returns UTC to the millisecond: "2026-11-22T13:04:05.678Z".
std::string time_text(WallClock::time_point time) {
  const auto since = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch());
  return fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(time), since.count() % 1000);
}

nlohmann::ordered_json start_json(const ProcessStart& start) {
  return {{"build", start.build},
          {"host", start.host},
          {"device", start.device},
          {"cores", start.cores},
          {"ranks", start.ranks},
          {"mesh", fmt::format("{}x{}", start.mesh.data, start.mesh.sequence)},
          {"layout", name_of(start.mesh.layout)}};
}

}  // namespace

std::string metrics_line(const StepRecord& record) {
  nlohmann::ordered_json json{{"skipped_steps", record.skipped_steps}};
  if (record.empty) json["empty"] = true;
  if (record.stage > 0) {
    json["stage"] = record.stage;
    json["seq_len"] = record.seq_len;
  }
  if (!record.trend.loss_spike.empty()) json["loss_spike"] = true;
  json["tokens_per_second"] = six_digits(record.tokens_per_second);
  json["seconds"] = six_digits(record.seconds);
  json["visible_pairs"] = static_cast<std::int64_t>(record.visible_pairs);
  json["ring_wait_seconds"] = six_digits(record.ring_wait_seconds);
  if (record.mfu) json["mfu"] = six_digits(*record.mfu);
  if (record.trend.loss_z) json["loss_z"] = six_digits(*record.trend.loss_z);
  if (record.trend.grad_norm_z) json["grad_norm_z"] = six_digits(*record.trend.grad_norm_z);
  json["samples"] = record.samples;
  for (const MemoryUse& peak : record.peak) json["peak_bytes"].push_back(peak_json(peak));
  if (record.ring) json["ring"] = to_json(*record.ring);
  if (record.audit) json["audit"] = to_json(*record.audit);
  if (record.started) json["started"] = start_json(*record.started);
  return fmt::format(R"({{"kind":"train","step":{},"time":"{}","tokens":{},"loss":{},"grad_norm":{},"lr":{},{})",
                     record.step, time_text(record.time), record.tokens, all_digits(record.loss),
                     all_digits(record.grad_norm), all_digits(record.lr), json_text(json).substr(1));
}

std::string metrics_line(std::int64_t step, WallClock::time_point time, const EvaluationSummary& summary) {
  nlohmann::ordered_json json{{"kind", "evaluation"}, {"step", step}, {"time", time_text(time)}};
  json.update(evaluation_json(summary));
  return json_text(json);
}

// If a disk fills up during a run, that counts as a failed save; an earlier check made sure that the folder is
// writable.
MetricsFile::MetricsFile(const std::string& path, OnFailure on_failure, Log warn)
    : lines_(path, ExitCode::checkpoint), on_failure_(on_failure), warn_(std::move(warn)) {}

void MetricsFile::write(const std::string& line) {
  lines_.add(line + "\n");
  try {
    flush();
  } catch (const Error& error) {
    if (on_failure_ == OnFailure::stop || lines_.waiting() > max_waiting) throw;
    if (!refused_) {
      warn_(fmt::format("warning: metrics are kept in memory, and training continues (checkpoint.on_failure: warn): {}",
                        error.what()));
    }
    refused_ = true;
    return;
  }
  if (refused_) warn_(fmt::format("{}: the metrics that were kept in memory are written now", lines_.path()));
  refused_ = false;
}

}  // namespace ringtrain
