#include "train/report/shown_run.h"

#include <algorithm>
#include <cmath>

namespace ringtrain {

std::vector<ChartPoint> points_of(const ShownRun& shown, double StepRow::*field) {
  std::vector<ChartPoint> points;
  for (const StepRow& row : shown.metrics.steps) {
    if (std::isfinite(row.*field)) points.push_back({static_cast<double>(row.step), row.*field});
  }
  return points;
}

double median(const ShownRun& shown, double StepRow::*field) {
  std::vector<double> values, warm;
  for (const StepRow& row : shown.metrics.steps) {
    if (!std::isfinite(row.*field)) continue;
    values.push_back(row.*field);
    if (!row.started) warm.push_back(row.*field);
  }
  if (!warm.empty()) values = std::move(warm);
  if (values.empty()) return std::nan("");
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

double last_loss(const ShownRun& shown) {
  const std::vector<ChartPoint> points = points_of(shown, &StepRow::loss);
  return points.empty() ? std::nan("") : smoothed(points).back();
}

double training_seconds(const ShownRun& shown) {
  double sum = 0;
  for (const StepRow& row : shown.metrics.steps) sum += std::isfinite(row.seconds) ? row.seconds : 0;
  return sum;
}

std::string text_in(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

double number_in(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : std::nan("");
}

}  // namespace ringtrain
