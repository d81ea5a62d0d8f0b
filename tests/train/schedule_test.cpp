#include "train/step/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/config/config.h"

namespace ringtrain {
namespace {

SchedulerConfig schedule(ScheduleType type, std::int64_t warmup, double ratio) {
  SchedulerConfig config;
  config.type = type;
  config.warmup_steps = warmup;
  config.min_lr_ratio = ratio;
  config.decay_ratio = 0.25;
  return config;
}

TEST(Schedule, WarmupRisesFromTheFirstStepAndReachesThePeak) {
  for (const auto type : {ScheduleType::cosine, ScheduleType::linear, ScheduleType::wsd, ScheduleType::constant}) {
    const SchedulerConfig config = schedule(type, 4, 0.1);
    EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 100, 1), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 100, 2), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 100, 4), 2.0);
  }
}

TEST(Schedule, EndsAtTheSmallestRateAndStaysThere) {
  for (const auto type : {ScheduleType::cosine, ScheduleType::linear, ScheduleType::wsd}) {
    const SchedulerConfig config = schedule(type, 4, 0.1);
    EXPECT_NEAR(learning_rate(config, 2.0, 100, 100), 0.2, 1e-15);
    EXPECT_NEAR(learning_rate(config, 2.0, 100, 150), 0.2, 1e-15);
    EXPECT_GT(learning_rate(config, 2.0, 100, 99), 0.2);
  }
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleType::constant, 4, 0.1), 2.0, 100, 100), 2.0);
}

TEST(Schedule, HasTheStatedShapeInBetween) {
  // Halfway from step 4 to step 104.
  EXPECT_NEAR(learning_rate(schedule(ScheduleType::cosine, 4, 0.1), 1.0, 104, 54), 0.55, 1e-15);
  EXPECT_NEAR(learning_rate(schedule(ScheduleType::cosine, 4, 0.1), 1.0, 104, 29), 0.1 + 0.45 * (1 + std::sqrt(0.5)),
              1e-15);
  EXPECT_NEAR(learning_rate(schedule(ScheduleType::linear, 4, 0.1), 1.0, 104, 29), 1 - 0.9 * 0.25, 1e-15);
  // The last quarter of 100 steps falls.
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleType::wsd, 4, 0.0), 1.0, 100, 75), 1.0);
  EXPECT_NEAR(learning_rate(schedule(ScheduleType::wsd, 4, 0.0), 1.0, 100, 80), 0.8, 1e-15);
}

TEST(Schedule, NeverRisesAfterTheWarmup) {
  for (const auto type : {ScheduleType::cosine, ScheduleType::linear, ScheduleType::wsd, ScheduleType::constant}) {
    for (const std::int64_t warmup : {0, 1, 7, 20, 30}) {  // 20: no step remains for the decay; 30: more than the total
      const SchedulerConfig config = schedule(type, warmup, 0.3);
      for (std::int64_t step = warmup + 1; step < 20; ++step) {
        EXPECT_LE(learning_rate(config, 1.0, 20, step + 1), learning_rate(config, 1.0, 20, step));
        EXPECT_GE(learning_rate(config, 1.0, 20, step), 0.3 - 1e-15);
      }
      EXPECT_LE(learning_rate(config, 1.0, 20, 1), 1.0);
    }
  }
}

TEST(Schedule, SaysWhatOfItNeverHappens) {
  for (const auto type : {ScheduleType::cosine, ScheduleType::linear, ScheduleType::wsd}) {
    EXPECT_TRUE(schedule_remarks(schedule(type, 5, 0.1), 20).empty());
    EXPECT_TRUE(schedule_remarks(schedule(type, 20, 0), 20).empty()) << "the last step of the warm-up has the peak";
    const std::vector<std::string> last{
        "lr_scheduler.min_lr_ratio = 0: the rate of the last step, 20, is 0, so it changes nothing"};
    EXPECT_EQ(schedule_remarks(schedule(type, 5, 0), 20), last);
    const std::vector<std::string> never{
        "lr_scheduler.warmup_steps = 21 is more than training.steps = 20: the rate never reaches optimizer.lr"};
    EXPECT_EQ(schedule_remarks(schedule(type, 21, 0), 20), never);
  }
  EXPECT_TRUE(schedule_remarks(schedule(ScheduleType::constant, 5, 0), 20).empty());
}

}  // namespace
}  // namespace ringtrain
