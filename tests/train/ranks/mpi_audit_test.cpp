// The audit of attention (training.audit) if ranks are processes: a correct run has no alarm and the bits of a run
// without audits; a flipped bit on one rank ends them all with 5, and rank 0 reports where it is.
#include "framework/config/read_config.h"
#include "tests/train/launch_fixture.h"

namespace ringtrain::testing {
namespace {

class AuditOfProcesses : public LaunchTest {
 protected:
  /// Four ranks of 2 x 2, one sequence each per step: 8 tokens, 2 layers, and 4 heads are 64 rows per rank.
  void write_ranks_config(const std::string& name, const std::vector<std::string>& more) const {
    const std::vector<std::string> common{"training.steps=6",     "training.seq_len=16", "training.global_batch_size=2",
                                          "mesh.data=2",          "mesh.sequence=2",     "mesh.layout=contiguous",
                                          "checkpoint.interval=2"};
    write_config(tiny(data, joined(common, more)), name);
  }
};

TEST_F(AuditOfProcesses, OfARightRunHasNoAlarmAndItsBits) {
  write_ranks_config("plain.yaml", {});
  write_ranks_config("audited.yaml", {"training.audit.interval=1", "training.audit.rows=64"});
  ASSERT_EQ(launched({"train", "--config", "plain.yaml"}).wait().code, 0);
  const ChildResult result = launched({"train", "--config", "audited.yaml"}).wait();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_FALSE(holds(result.err, "the audit of attention found"));
  expect_same_bits("runs/audited", "runs/plain");
  const auto lines = metrics("runs/audited");
  ASSERT_EQ(lines.size(), 6U);
  for (const auto& line : lines) {
    EXPECT_EQ(line.at("audit").at("rows"), 4 * 64);
    EXPECT_EQ(line.at("audit").at("departures"), 0);
    for (const auto& error : line.at("audit").at("error")) {
      EXPECT_GT(error.get<double>(), 0.0) << "it compared nothing";
      EXPECT_LE(error.get<double>(), 1.0);
    }
  }
}

TEST_F(AuditOfProcesses, ABitThatFlipsOnOneRankEndsAllOfThemAndIsPlaced) {
  write_ranks_config("run.yaml", {"training.audit.interval=3", "training.audit.rows=64"});
  // Rank 3 has the second sequence's positions 8 to 15. The seed and the step determine the rows: in step 3, this is
  // one of them.
  const ChildResult result = launched({"flipping_train", "run.yaml", "runs/run", "3", "1", "5", "3", "1"}).wait();
  EXPECT_EQ(result.code, 5) << result.err;
  expect_nothing_left();
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(count_of(result.err, fmt::format("process {} ends with 5\n", rank)), 1u) << result.err;
  }
  EXPECT_EQ(count_of(result.err, "step 3: the audit of attention found"), 1u) << "one process speaks\n" << result.err;
  EXPECT_TRUE(holds_all(result.err, {"layer.1.attention differs at head 3, sequence 1, position 13, element 1, "
                                     "computed by rank 3 on cpu: the run has ",
                                     "still those of step 2"}));
  const auto lines = metrics("runs/run");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_GT(lines[2].at("audit").at("departures"), 0);

  // The step's update was not made: without the fault, the same folder continues like a run that never had it.
  ASSERT_EQ(launched({"flipping_train", "run.yaml", "runs/whole", "-1", "1", "5", "2", "1"}).wait().code, 0);
  const ChildResult resumed = launched({"train", "--config", "run.yaml", "--resume"}).wait();
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_same_bits("runs/run", "runs/whole");
}

}  // namespace
}  // namespace ringtrain::testing
