// extras/planner/search.h: all ways that divide the batch are included, best first, and the reasons are true.
// extras/planner/plan_report.h: if nothing fits, it says what would, and that does fit.
#include "extras/planner/search.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "extras/planner/plan_report.h"
#include "framework/config/read_config.h"
#include "layers/check_model.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

PlanRequest gpu_request(const std::vector<std::string>& settings) {
  return {.config = read_config(source_folder() + "/configs/long_ctx_gpu.yaml", settings, ConfigUse::know, check_model),
          .hardware = read_hardware(source_folder() + "/configs/hardware/h100.yaml")};
}

TEST(Search, HoldsEveryMeshThatDividesTheBatchBestFirst) {
  const Candidates found = search_plans(gpu_request({"training.global_batch_size=4"}), 16);
  std::set<std::pair<std::int64_t, std::int64_t>> meshes;
  std::set<std::int64_t> micro;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Candidate& c = found[i];
    meshes.emplace(c.config.mesh.data, c.config.mesh.sequence);
    micro.insert(c.config.training.micro_batch_size);
    EXPECT_EQ(c.config.training.global_batch_size, 4);
    EXPECT_EQ(c.fits, c.need.device <= 80e9);
    if (i < 2 || !c.fits) continue;  // the first is the choice among ties
    EXPECT_TRUE(found[i - 1].fits);
    EXPECT_LE(c.tokens_per_second, found[i - 1].tokens_per_second);
  }
  EXPECT_EQ(meshes, (std::set<std::pair<std::int64_t, std::int64_t>>{{1, 16}, {2, 8}, {4, 4}}));
  EXPECT_EQ(micro, (std::set<std::int64_t>{1, 2, 4}));
  // The report has the choice, and for each setting the fastest candidate with another value.
  const std::string text = search_report(found);
  EXPECT_EQ(std::ranges::count(text, '\n'), 2 + 1 + 7);
  for (const char* row : {"the choice ", "another mesh ", "another layout ", "another recompute ", "another offload ",
                          "another host share ", "another shard ", "another micro-batch "}) {
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
  const auto other =
      std::ranges::find_if(found, [&](const Candidate& c) { return c.config.mesh.data != found[0].config.mesh.data; });
  EXPECT_TRUE(std::regex_search(
      text, std::regex(fmt::format("another mesh +{}x{} ", other->config.mesh.data, other->config.mesh.sequence))))
      << text;
  const std::string report = search_report(search_plans(gpu_request({}), 1));
  EXPECT_EQ(report.find("another mesh"), std::string::npos) << report;  // there is none
}

TEST(Search, KeepsOnlyPartOfTheOptimizerOnTheHostIfMoreFitsOnTheDevice) {
  const Candidates found =
      search_plans(gpu_request({"model.hidden_size=4096", "model.num_hidden_layers=36", "model.num_attention_heads=32",
                                "model.intermediate_size=12288", "training.seq_len=8192", "optimizer.moments=bfloat16",
                                "optimizer.gradients=bfloat16"}),
                   1);
  EXPECT_TRUE(found.front().fits && found.front().config.optimizer.host_share < 1);
}

TEST(Search, AContiguousCausalRingLosesByItsWaits) {
  const Candidates found = search_plans(gpu_request({}), 8);
  ASSERT_TRUE(found.front().fits);
  EXPECT_NE(found.front().config.mesh.layout, Layout::contiguous);
  for (const Candidate& c : found) {
    if (!c.fits || c.config.mesh.layout != Layout::contiguous) continue;
    // The last rank has nearly twice the average number of pairs.
    EXPECT_GT(c.times.ring_wait + c.times.reduction_wait, 0.1 * c.times.step_seconds);
  }
}

TEST(Search, TiesGoToZigzagThenToLessMemory) {
  const Candidates found = search_plans(gpu_request({}), 8);
  const Candidate& choice = found.front();
  double fastest = 0;
  for (const Candidate& c : found) fastest = std::max(fastest, c.tokens_per_second);
  EXPECT_GE(choice.tokens_per_second, (1 - tie) * fastest);
  EXPECT_EQ(choice.config.mesh.layout, Layout::zigzag);
  bool a_faster_tie = false;
  for (const Candidate& c : found) {
    if (!c.fits || c.tokens_per_second < (1 - tie) * fastest) continue;
    a_faster_tie = a_faster_tie || c.tokens_per_second > choice.tokens_per_second;
    if (c.config.mesh.layout != Layout::zigzag) continue;
    EXPECT_GE(c.need.device + c.need.host, choice.need.device + choice.need.host);
  }
  EXPECT_TRUE(a_faster_tie);
}

TEST(Search, HostMemoryOfANodeDecides) {
  PlanRequest request = gpu_request({"training.seq_len=1048576"});
  const auto moved = [](const Candidates& found) {
    return std::ranges::count_if(found, [](const Candidate& c) { return c.fits && c.need.host > 10e9; });
  };
  request.hardware.node_memory = 0;  // unknown: no limit
  EXPECT_GT(moved(search_plans(request, 2)), 0);
  request.hardware.node_memory = 10e9;
  EXPECT_EQ(moved(search_plans(request, 2)), 0);
  // Both ranks share a node, which holds the bytes of both.
  request.hardware.node_memory = 1e15;
  double of_two = 0, of_one = 0;
  for (const Candidate& c : search_plans(request, 2)) of_two = std::max(of_two, c.need.host);
  request.hardware.node_ranks = 1;
  for (const Candidate& c : search_plans(request, 2)) of_one = std::max(of_one, c.need.host);
  EXPECT_GT(of_one, 0);
  EXPECT_EQ(of_two, 2 * of_one);
}

TEST(Search, PrefersWhatFitsAndNamesTheMemoryThatWouldHelp) {
  PlanRequest request = gpu_request({"training.seq_len=262144"});
  double least = 1e30;
  for (const Candidate& c : search_plans(request, 2)) least = std::min(least, c.need.device);
  request.hardware.memory_bytes = least;
  const Candidates tight = search_plans(request, 2);
  ASSERT_TRUE(tight.front().fits);
  EXPECT_EQ(tight.front().need.device, least);
  request.hardware.memory_bytes = least - 1;
  const Candidates none = search_plans(request, 2);
  EXPECT_FALSE(none.front().fits);
  EXPECT_EQ(none.front().need.device, least);  // the nearest to fitting
  EXPECT_NE(search_report(none).find("does not fit"), std::string::npos);
}

TEST(Search, WhatCannotBeSimulatedIsLeftOut) {
  PlanRequest request = gpu_request({"training.seq_len=1048576", "data.packing=documents"});
  request.mean_document = 3;
  std::string said;
  EXPECT_TRUE(search_plans(request, 128, [&](const std::string& line) { said = line; }).front().fits);
  EXPECT_NE(said.find(" ways are left out: simulating 1 ring of 128 ranks "), std::string::npos) << said;
}

TEST(Search, DevicesThatNothingDividesAreRefused) {
  expect_error(ExitCode::usage, "no mesh of 7 devices", [] { search_plans(gpu_request({"training.seq_len=4"}), 7); });
  expect_error(ExitCode::usage, "and at most 1024;", [] { search_plans(gpu_request({}), 8192); });
}

/// Returns the advice for the best way to fit the request on this many devices.
std::string advice_of(PlanRequest& request, std::int64_t devices) {
  const Candidates found = search_plans(request, devices);
  EXPECT_FALSE(found.front().fits);
  request.config = found.front().config;
  return fmt::format("{}", fmt::join(advice(request.config, request.hardware), "\n"));
}

TEST(Advice, SaysWhatWouldFitAndItDoes) {
  PlanRequest request = gpu_request({"training.seq_len=524288"});
  request.hardware.memory_bytes = 20e9;
  const std::string text = advice_of(request, 2);
  EXPECT_NE(text.find("of memory, and 18.6 GiB can be used on a device"), std::string::npos) << text;
  for (const char* part : {"training.shard: weights", "a smaller model"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  std::smatch found;
  ASSERT_TRUE(std::regex_search(text, found, std::regex("would fit on (\\d+) devices"))) << text;
  Config config = request.config;
  config.mesh.data = config.training.global_batch_size = config.training.micro_batch_size = 1;
  config.mesh.sequence = std::stoll(found[1]);
  EXPECT_TRUE(memory_need(config, request.hardware).fits(request.hardware));
  config.mesh.sequence /= 2;
  EXPECT_FALSE(memory_need(config, request.hardware).fits(request.hardware));
  ASSERT_TRUE(std::regex_search(text, found, std::regex("training.seq_len up to (\\d+)"))) << text;
  config = request.config;
  config.training.seq_len = std::stoll(found[1]);
  EXPECT_TRUE(memory_need(config, request.hardware).fits(request.hardware));
  EXPECT_NE(text.find("there is room on a100,"), std::string::npos) << text;
}

TEST(Advice, SaysWhereNoNumberOfDevicesIsEnough) {
  PlanRequest request = gpu_request({});
  request.hardware.memory_bytes = 1e9;  // less than a chunk of logits and the buffers of gathered weights
  const std::string text = advice_of(request, 4);
  EXPECT_NE(text.find("it does not fit on any number of devices up to 1024"), std::string::npos) << text;
}

}  // namespace
}  // namespace ringtrain::testing
