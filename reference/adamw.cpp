#include "reference/adamw.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/config/config.h"

namespace ringtrain::reference {

double learning_rate(const Config& config, std::int64_t step) {
  const SchedulerConfig& schedule = config.lr_scheduler;
  const auto t = static_cast<double>(step), warmup = static_cast<double>(schedule.warmup_steps);
  const auto all = static_cast<double>(config.training.steps);
  const double peak = config.optimizer.lr, low = schedule.min_lr_ratio;
  if (t <= warmup) return peak * t / warmup;
  // The fraction of the decay that is done, from the step where the rate begins to fall to the last step.
  const auto way = [&](double begin) { return all > begin ? std::clamp((t - begin) / (all - begin), 0.0, 1.0) : 1.0; };
  switch (schedule.type) {
    case ScheduleType::constant:
      return peak;
    case ScheduleType::cosine:
      return peak * (low + (1 - low) * (1 + std::cos(std::numbers::pi * way(warmup))) / 2);
    case ScheduleType::linear:
      return peak * (1 - (1 - low) * way(warmup));
    case ScheduleType::wsd: {
      const double begin = std::max(warmup, all - std::round(schedule.decay_ratio * all));
      return t <= begin ? peak : peak * (1 - (1 - low) * way(begin));
    }
  }
  return peak;
}

void adamw(Moments& p, const Vector& gradient, const OptimizerConfig& config, double rate, double clip,
           std::int64_t step, bool decays) {
  const auto t = static_cast<double>(step);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double g = clip * gradient[i];
    p.first[i] = config.beta1 * p.first[i] + (1 - config.beta1) * g;
    p.second[i] = config.beta2 * p.second[i] + (1 - config.beta2) * g * g;
    const double mean = p.first[i] / (1 - std::pow(config.beta1, t));
    const double square = p.second[i] / (1 - std::pow(config.beta2, t));
    const double decay = decays ? config.weight_decay * p.weights[i] : 0;
    p.weights[i] -= rate * (mean / (std::sqrt(square) + config.eps) + decay);
  }
}

}  // namespace ringtrain::reference
