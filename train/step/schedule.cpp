#include "train/step/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/config/config.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

/// Returns the fraction of the way from `begin` (0) to `end` (1) at a step.
double progress(std::int64_t step, std::int64_t begin, std::int64_t end) {
  if (end <= begin) return step > begin ? 1.0 : 0.0;
  return std::clamp(static_cast<double>(step - begin) / static_cast<double>(end - begin), 0.0, 1.0);
}

}  // namespace

double learning_rate(const SchedulerConfig& config, double peak, std::int64_t steps, std::int64_t step) {
  ensure(step >= 1, "steps count from 1");
  const std::int64_t warmup = config.warmup_steps;
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  const double low = config.min_lr_ratio;
  switch (config.type) {
    case ScheduleType::constant:
      return peak;
    case ScheduleType::cosine:
      return peak * (low + (1 - low) * 0.5 * (1 + std::cos(std::numbers::pi * progress(step, warmup, steps))));
    case ScheduleType::linear:
      return peak * (1 - (1 - low) * progress(step, warmup, steps));
    case ScheduleType::wsd: {
      const auto decay = static_cast<std::int64_t>(std::llround(config.decay_ratio * static_cast<double>(steps)));
      return peak * (1 - (1 - low) * progress(step, std::max(warmup, steps - decay), steps));
    }
  }
  return peak;
}

std::vector<std::string> schedule_remarks(const SchedulerConfig& config, std::int64_t steps) {
  std::vector<std::string> remarks;
  if (config.warmup_steps > steps) {
    remarks.push_back(fmt::format(
        "lr_scheduler.warmup_steps = {} is more than training.steps = {}: the rate never reaches optimizer.lr",
        config.warmup_steps, steps));
  } else if (config.warmup_steps < steps && learning_rate(config, 1.0, steps, steps) == 0) {
    remarks.push_back(fmt::format(
        "lr_scheduler.min_lr_ratio = 0: the rate of the last step, {}, is 0, so it changes nothing", steps));
  }
  return remarks;
}

}  // namespace ringtrain
