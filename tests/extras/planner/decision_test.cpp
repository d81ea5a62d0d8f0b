// extras/planner/decision.h and advice.h: a row for each hardware and number of devices, flags that give the row's
// plan, hours and price that add up; where nothing fits, what would, and it does.
#include "extras/planner/decision.h"

#include <gtest/gtest.h>

#include <regex>

#include "extras/planner/advice.h"
#include "framework/config/read_config.h"
#include "layers/check_model.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

Config gpu_config(const std::vector<std::string>& settings) {
  return read_config(source_folder() + "/configs/long_ctx_gpu.yaml", settings, ConfigUse::know, check_model);
}
Offer offer(const std::string& name, double price) {
  return {name, read_hardware(source_folder() + "/configs/hardware/" + name + ".yaml"), price};
}

TEST(Decision, ARowsFlagsGiveItsPlan) {
  PlanRequest request{.config = gpu_config({}), .hardware = {}};
  request.tokens = 1e9;
  const std::vector<Decision> rows = decide(request, {offer("h100", 2.5), offer("b200", 0)}, {2, 4}, {});
  ASSERT_EQ(rows.size(), 4u);
  for (const Decision& row : rows) {
    ASSERT_TRUE(row.fits());
    std::vector<std::string> settings;
    const std::regex flag("--set (\\S+)");
    for (std::sregex_iterator found(row.flags.begin(), row.flags.end(), flag), end; found != end; ++found) {
      settings.push_back((*found)[1]);
    }
    const Config config = gpu_config(settings);
    EXPECT_EQ(config.mesh.data * config.mesh.sequence, row.devices);
    const Plan plan = make_plan({.config = config, .hardware = row.offer.hardware, .longest_context = false});
    EXPECT_EQ(plan.times.step_seconds, row.plan.times.step_seconds);
    EXPECT_EQ(plan.hours, row.plan.hours);  // the flags have the steps of 1e9 tokens
    EXPECT_GE(plan.run.steps * plan.step_tokens, 1e9);
    EXPECT_LT((plan.run.steps - 1) * plan.step_tokens, 1e9);
    EXPECT_DOUBLE_EQ(row.plan.device_hours, row.plan.hours * static_cast<double>(row.devices));
    EXPECT_DOUBLE_EQ(row.plan.price, row.plan.device_hours * row.offer.device_price);
  }
  EXPECT_EQ(rows[0].offer.name, "h100");
  EXPECT_EQ(rows[1].devices, 4);
  const std::string table = decision_table(rows);
  EXPECT_NE(table.find("cheapest: row 1, 2 of h100"), std::string::npos) << table;
  EXPECT_NE(table.find("fastest: row 4, 4 of b200"), std::string::npos) << table;
  EXPECT_NE(table.find("ringtrain has not been measured on this device"), std::string::npos) << table;
}

TEST(Decision, WhereNothingFitsItSaysWhatWouldAndItDoes) {
  Offer small = offer("h100", 2.5);
  small.hardware.memory_bytes = 20e9;
  PlanRequest request{.config = gpu_config({"training.seq_len=524288"}), .hardware = {}};
  request.tokens = 1e9;
  const std::vector<Decision> rows = decide(request, {small}, {2}, {});
  ASSERT_FALSE(rows[0].fits());
  const std::string table = decision_table(rows);
  EXPECT_EQ(table.find("price"), std::string::npos) << table;
  EXPECT_NE(table.find("of the 18.6 GiB that a device has"), std::string::npos) << table;
  EXPECT_NE(table.find("no number of devices lowers weights"), std::string::npos) << table;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(table, found, std::regex("would fit on (\\d+) devices"))) << table;
  Config config = config_of(request.config, rows[0].search.candidates.front());
  config.mesh.data = config.training.global_batch_size = config.training.micro_batch_size = 1;
  config.mesh.sequence = std::stoll(found[1]);
  EXPECT_TRUE(memory_need(config, small.hardware).fits(small.hardware));
  config.mesh.sequence /= 2;
  EXPECT_FALSE(memory_need(config, small.hardware).fits(small.hardware));
  ASSERT_TRUE(std::regex_search(table, found, std::regex("training.seq_len up to (\\d+)"))) << table;
  config = config_of(request.config, rows[0].search.candidates.front());
  config.training.seq_len = std::stoll(found[1]);
  EXPECT_TRUE(memory_need(config, small.hardware).fits(small.hardware));
  EXPECT_NE(table.find("there is room on a100,"), std::string::npos) << table;
}

TEST(Decision, WhatNoNumberOfDevicesLowersIsSaidWhereItIsTooMuch) {
  Offer small = offer("h100", 0);
  small.hardware.memory_bytes = 1e9;  // less than a chunk of logits and the places of gathered weights
  const std::vector<Decision> rows = decide({.config = gpu_config({}), .hardware = {}}, {small}, {4}, {});
  const std::string table = decision_table(rows);
  EXPECT_NE(table.find("it fits on no number of devices up to 65536"), std::string::npos) << table;
}

}  // namespace
}  // namespace ringtrain::testing
