// train/planning/search.h: all ways that divide the batch are there, the best first, and the reasons are true.
#include "train/planning/search.h"

#include <gtest/gtest.h>

#include <set>

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
  const SearchResult result = search_plans(gpu_request({"training.global_batch_size=4"}), 16);
  std::set<std::pair<std::int64_t, std::int64_t>> meshes;
  std::set<std::int64_t> micro;
  for (std::size_t i = 0; i < result.candidates.size(); ++i) {
    const Candidate& c = result.candidates[i];
    meshes.emplace(c.mesh.data, c.mesh.sequence);
    micro.insert(c.micro_batch_size);
    EXPECT_EQ(c.fits, c.memory_needed <= 80e9);
    if (i == 0 || !c.fits) continue;
    EXPECT_TRUE(result.candidates[i - 1].fits);
    EXPECT_GE(c.step_seconds, result.candidates[i - 1].step_seconds);
  }
  EXPECT_EQ(meshes, (std::set<std::pair<std::int64_t, std::int64_t>>{{1, 16}, {2, 8}, {4, 4}}));
  EXPECT_EQ(micro, (std::set<std::int64_t>{1, 2, 4}));
  EXPECT_EQ(result.why.size(), 5u);
  EXPECT_GE(result.levers.size(), 4u);
  for (std::size_t i = 1; i < result.levers.size(); ++i) EXPECT_GE(result.levers[i - 1].gain, result.levers[i].gain);
}

TEST(Search, AContiguousCausalRingLosesByItsWaits) {
  const SearchResult result = search_plans(gpu_request({}), 8);
  ASSERT_TRUE(result.candidates.front().fits);
  EXPECT_NE(result.candidates.front().mesh.layout, Layout::contiguous);
  for (const Candidate& c : result.candidates) {
    if (!c.fits || c.mesh.layout != Layout::contiguous) continue;
    // The last rank has nearly twice the mean of the pairs.
    EXPECT_GT(c.times.ring_wait + c.times.reduction_wait, 0.1 * c.step_seconds);
  }
}

TEST(Search, PrefersWhatFitsAndNamesTheMemoryThatWouldHelp) {
  PlanRequest request = gpu_request({"training.seq_len=262144"});
  const SearchResult roomy = search_plans(request, 2);
  double least = 1e30;
  for (const Candidate& c : roomy.candidates) least = std::min(least, c.memory_needed);
  request.hardware.memory_bytes = least;
  const SearchResult tight = search_plans(request, 2);
  ASSERT_TRUE(tight.candidates.front().fits);
  EXPECT_EQ(tight.candidates.front().memory_needed, least);
  request.hardware.memory_bytes = least - 1;
  const SearchResult none = search_plans(request, 2);
  EXPECT_FALSE(none.candidates.front().fits);
  EXPECT_EQ(none.candidates.front().memory_needed, least);  // the nearest to fitting
  EXPECT_TRUE(none.why.empty());
  EXPECT_NE(search_report(none).find("does not fit"), std::string::npos);
}

TEST(Search, DevicesThatNothingDividesAreRefused) {
  const std::string sentence = error_of(ExitCode::usage, [] { search_plans(gpu_request({"training.seq_len=4"}), 7); });
  EXPECT_NE(sentence.find("no mesh of 7 devices"), std::string::npos) << sentence;
  const std::string longer = error_of(ExitCode::usage, [] { search_plans(gpu_request({}), 8192); });
  EXPECT_NE(longer.find("and 4096 ranks"), std::string::npos) << longer;
}

}  // namespace
}  // namespace ringtrain::testing
