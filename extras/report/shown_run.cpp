#include "extras/report/shown_run.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

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

std::pair<double, double> interval_in(const nlohmann::json& object, const char* name, bool meaningful) {
  const nlohmann::json found = object.value(name, nlohmann::json());
  if (!meaningful || !found.is_array() || found.size() != 2 || !found[0].is_number() || !found[1].is_number()) {
    return {std::nan(""), std::nan("")};
  }
  return {found[0].get<double>(), found[1].get<double>()};
}

std::string interval_text(std::pair<double, double> interval) {
  if (!std::isfinite(interval.first) || !std::isfinite(interval.second)) return "-";
  return fmt::format("{} to {}", four_digits(interval.first), four_digits(interval.second));
}

std::string length_name(const nlohmann::json& object) {
  return fmt::format("{:.0f}", number_in(object, "context_length"));
}

std::vector<ChartPoint> points_in(const nlohmann::json& list, const char* x_name, const char* value,
                                  const char* interval, bool meaningful) {
  std::vector<ChartPoint> points;
  for (const nlohmann::json& item : list) {
    const double x = number_in(item, x_name), y = number_in(item, value);
    if (!(x > 0) || !std::isfinite(y)) continue;
    const auto [low, high] = interval_in(item, interval, meaningful);
    points.push_back({x, y, low, high});
  }
  std::ranges::sort(points, {}, &ChartPoint::x);
  return points;
}

Rows length_rows(const nlohmann::json& results, bool meaningful) {
  Rows rows{{"context", "perplexity", "nll", "95% of nll", "bits per byte", "change", "95% of change"}};
  for (const nlohmann::json& result : results) {
    rows.push_back({length_name(result), four_digits(number_in(result, "perplexity")),
                    four_digits(number_in(result, "nll")), interval_text(interval_in(result, "ci95", meaningful)),
                    four_digits(number_in(result, "bits_per_byte")), signed_digits(number_in(result, "delta_nll")),
                    interval_text(interval_in(result, "delta_ci95", meaningful))});
  }
  return rows;
}

}  // namespace ringtrain
