// The learning rate of a step: a linear warm-up, then cosine, linear, warmup-stable-decay or constant. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringtrain {

struct SchedulerConfig;

/// Returns the rate of `step` (the first is 1) in a run of `steps`. It rises to `peak` over the warm-up (step 1 already
/// learns), then falls, unless the schedule is constant, to peak * min_lr_ratio at the last step, and stays there.
double learning_rate(const SchedulerConfig& config, double peak, std::int64_t steps, std::int64_t step);

/// Returns what a person should know about a run's rates before it starts, one message each.
std::vector<std::string> schedule_remarks(const SchedulerConfig& config, std::int64_t steps);

}  // namespace ringtrain
