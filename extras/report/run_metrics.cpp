#include "extras/report/shown_run.h"
#include "framework/error.h"
#include "train/run/metrics_lines.h"

namespace ringtrain {

namespace {

using nlohmann::json;

/// Returns whether the members that the page uses have the structure that train writes.
bool has_shape(const json& line, bool evaluation) {
  try {
    for (const json& result : evaluation ? line.at("results").get_ref<const json::array_t&>() : json::array_t()) {
      result.at("context_length").get_ref<const json::number_integer_t&>();
    }
    line.value("started", json::object_t());
    for (const auto& [name, pass] : line.value("ring", json::object_t())) {
      if (name == "forward" || name == "backward") pass.value("hop_wait_seconds", json::array_t());
    }
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

StepRow row_of(const MetricsEntry& entry) {
  const auto flag = [&](const char* name) { return entry.json.value(name, json()) == true; };
  StepRow row{.step = entry.step,
              .empty = flag("empty"),
              .spike = flag("loss_spike"),
              .started = entry.json.contains("started")};
  for (const char* const name : {"step", "tokens", "loss", "grad_norm", "lr", "seconds", "tokens_per_second", "mfu",
                                 "loss_z", "grad_norm_z", "ring_wait_seconds"}) {
    row.numbers[name] = number_in(entry.json, name);
  }
  return row;
}

}  // namespace

RunMetrics read_run_metrics(const std::string& path) {
  RunMetrics metrics;
  std::map<std::int64_t, StepRow> steps;
  std::int64_t number = 0;
  const auto take = [&](const MetricsLine& line) {
    ++number;
    std::optional<MetricsEntry> entry = parse_metrics_line(line.text);
    if (!entry || !has_shape(entry->json, entry->evaluation)) {
      if (metrics.skipped++ == 0) metrics.first_skipped = number;
      return;
    }
    if (entry->evaluation) {
      metrics.evaluations.push_back(std::move(entry->json));
      return;
    }
    steps[entry->step] = row_of(*entry);
    const auto keep = [&](const char* field, json& kept) {
      if (!entry->json.contains(field)) return;
      kept = std::move(entry->json[field]);
      if (kept.is_object()) kept["step"] = entry->step;
    };
    keep("peak_bytes", metrics.peaks);
    keep("ring", metrics.ring);
    if (entry->json.contains("started")) keep("started", metrics.starts.emplace_back());
  };
  if (path_exists(path)) read_metrics_lines(File::open(path, ExitCode::usage), take);
  if (steps.empty()) {
    fail(ExitCode::usage, "{} {}: name a run's folder, as train --output does", path,
         path_exists(path) ? "holds no training step" : "does not exist");
  }
  for (const auto& [step, row] : steps) metrics.steps.push_back(row);
  return metrics;
}

}  // namespace ringtrain
