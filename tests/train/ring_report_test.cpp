// What runs report about their ring: the combined numbers of several ranks, metrics.jsonl, and --dry-run.
#include "train/step/ring_report.h"

#include "framework/sequence/mesh.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

TEST(RingReport, GathersTheWorstRingAndTheMeanWaits) {
  const Mesh mesh{2, 2};
  std::vector<std::vector<double>> values(4);
  std::vector<std::span<const double>> loads;
  for (int rank = 0; rank < 4; ++rank) {
    const RingLoad forward{.pairs = rank < 2 ? 100 : 100 + 100 * (rank - 2),  // rings of (100, 100) and (100, 200)
                           .compute_seconds = rank == 0 ? 3.0 : 1.0,
                           .hop_waits = {0, 0.1 * rank, 1}};
    const RingLoad backward{.pairs = 7, .compute_seconds = 2, .hop_waits = {0, 0, 0.5}};
    std::vector<double>& of_rank = values[rank];
    append(of_rank, {forward, backward});
    loads.emplace_back(of_rank);
  }
  const RingReport report = ring_report(mesh, loads);
  EXPECT_DOUBLE_EQ(report.pairs_imbalance, 200 / 150.0);
  EXPECT_DOUBLE_EQ(report.time_imbalance[0], 1.5);
  EXPECT_DOUBLE_EQ(report.time_imbalance[1], 1);
  ASSERT_EQ(report.hop_waits[0].size(), 3u);
  EXPECT_DOUBLE_EQ(report.hop_waits[0][1], 0.15);
  EXPECT_DOUBLE_EQ(report.hop_waits[0][2], 1);
  EXPECT_DOUBLE_EQ(report.hop_waits[1][2], 0.5);
}

class RingReports : public TextTest {};

TEST_F(RingReports, AreInMetrics) {
  for (const std::string layout : {"zigzag", "contiguous"}) {
    const Config config =
        tiny(data, {"training.steps=3", "training.global_batch_size=2", "training.seq_len=64", "data.packing=concat",
                    "mesh.sequence=4", "mesh.data=2", "mesh.layout=" + layout});
    run(config, layout);
    const double expected = layout == "zigzag" ? 1.0 : 2 - 1.0 / 4;
    for (const auto& line : metrics(layout)) {
      const auto& ring = line.at("ring");
      EXPECT_NEAR(ring.at("pairs_imbalance").get<double>(), expected, 0.03);
      for (const char* pass : {"forward", "backward"}) {
        EXPECT_GE(ring.at(pass).at("time_imbalance").get<double>(), 1);
        EXPECT_LE(ring.at(pass).at("time_imbalance").get<double>(), 4);
        double waits = 0;
        ASSERT_EQ(ring.at(pass).at("hop_wait_seconds").size(), 5u);
        for (const auto& wait : ring.at(pass).at("hop_wait_seconds")) waits += wait.get<double>();
        EXPECT_GT(waits, 0);
        EXPECT_LT(waits, line.at("seconds").get<double>());
      }
    }
    const std::string plan = dry_run_report(prepare_run({.config = config, .output = at("new")}, quiet));
    EXPECT_TRUE(holds(plan, layout == "zigzag" ? "busiest rank has 1.0" : "busiest rank has 1.7"));
  }
  run(tiny(data, {"training.steps=1", "training.global_batch_size=2"}), "one");
  EXPECT_FALSE(metrics("one").at(0).contains("ring"));
}

}  // namespace
}  // namespace ringtrain::testing
