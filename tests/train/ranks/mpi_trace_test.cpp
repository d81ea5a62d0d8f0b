// train --trace with ranks that are processes: one file with one clock. No message arrives before it was sent, by more
// than the errors that the file states. A failed run leaves a file for each process, with the same clock.
#include <algorithm>
#include <fstream>
#include <iostream>

#include "framework/config/read_config.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/timeline.h"

namespace ringtrain::testing {
namespace {

class MpiTimeline : public TimelineTest {
 protected:
  void SetUp() override {
    TextTest::SetUp();
    prepare_for_mpirun(folder);
    config = to_yaml(tiny(data, {"training.steps=4", "training.global_batch_size=2"}));
  }
  void TearDown() override {
    ::unsetenv("TMPDIR");
    TrainTest::TearDown();
  }
  /// Trains on a mesh, with one process per rank. Each reads a separate config with 160,000 more comments than that of
  /// the previous one, so its clock begins about 10 ms later.
  ChildResult traced(int data_ranks, int sequence) const {
    std::vector<std::string> arguments{"--oversubscribe", "--bind-to", "none"};
    for (int rank = 0; rank < data_ranks * sequence; ++rank) {
      const std::string name = fmt::format("rank{}.yaml", rank);
      std::ofstream file(at(name));
      file << config;
      for (int i = 0; i < 160'000 * rank; ++i) file << "#\n";
      if (rank > 0) arguments.emplace_back(":");
      arguments.insert(arguments.end(), {"-n", "1", binary_folder() + "/train", "--config", name, "--output", "run"});
      for (const std::string& one : mesh_of(data_ranks, sequence)) arguments.insert(arguments.end(), {"--set", one});
      arguments.insert(arguments.end(), {"--trace", "trace.json"});
    }
    return run_child(MPIEXEC, arguments, folder);
  }
  json file(const std::string& name) const { return json::parse(content_of(at(name))); }

  /// Returns a rank's exchanges of this operation with a peer, as "to" or "from", in the order in which they were
  /// posted.
  static std::vector<TimelineSpan> messages(const std::map<std::pair<std::int64_t, std::string>, TimelineRow>& rows,
                                            int data_rank, int rank, const std::string& operation,
                                            const std::string& direction, int peer) {
    std::vector<TimelineSpan> found;
    for (const auto& [key, row] : rows) {
      if (key.first != data_rank || !key.second.starts_with(fmt::format("sequence rank {} communication", rank)))
        continue;
      for (const TimelineSpan& span : row.spans) {
        if (span.name == operation && span.arguments.value(direction, -1) == peer) found.push_back(span);
      }
    }
    std::ranges::sort(found, {}, &TimelineSpan::begin);
    return found;
  }

  std::string config;
};

TEST_F(MpiTimeline, OfAllProcessesIsOneFileInWhichNothingArrivesBeforeItWasSent) {
  constexpr int data_ranks = 2, sequence = 2;
  const ChildResult result = traced(data_ranks, sequence);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(holds(result.err, "timeline is in trace.json"));
  for (int rank = 0; rank < data_ranks * sequence; ++rank) {
    EXPECT_FALSE(fs::exists(at(fmt::format("trace.rank{}.json", rank))));
  }
  const json clocks = file("trace.json").at("otherData").at("clocks");
  ASSERT_EQ(clocks.size(), static_cast<std::size_t>(data_ranks * sequence));
  std::vector<double> errors;
  double farthest = 0;
  for (std::size_t rank = 0; rank < clocks.size(); ++rank) {
    EXPECT_EQ(clocks[rank].at("rank"), rank);
    errors.push_back(clocks[rank].at("error_microseconds"));
    farthest = std::max(farthest, std::abs(clocks[rank].at("offset_microseconds").get<double>()));
    EXPECT_EQ(errors.back() > 0, rank > 0);
    EXPECT_LT(errors.back(), 50e3);
  }
  EXPECT_GT(farthest, 5e3) << "the clocks of this test began too close to each other";
  const auto rows = rows_of(at("trace.json"));
  std::size_t pairs = 0;
  double soonest = 1e12;  // the minimum time from a send's post to its arrival
  for (int d = 0; d < data_ranks; ++d) {
    for (int from = 0; from < sequence; ++from) {
      EXPECT_EQ(rows.at({d, fmt::format("sequence rank {}", from)}).count("step"), 4u);
      const int to = (from + 1) % sequence;
      for (const std::string operation : {"ring keys and values", "ring gradients"}) {
        const auto sent = messages(rows, d, from, operation, "to", to),
                   received = messages(rows, d, to, operation, "from", from);
        ASSERT_EQ(sent.size(), received.size());
        const double error = errors[d * sequence + from] + errors[d * sequence + to];
        for (std::size_t i = 0; i < sent.size(); ++i) {
          EXPECT_EQ(sent[i].arguments.value("layer", -1), received[i].arguments.value("layer", -1));
          EXPECT_EQ(sent[i].arguments.value("hop", -1), received[i].arguments.value("hop", -1));
          EXPECT_GE(received[i].end, sent[i].begin - error)
              << operation << " " << i << " from rank " << from << " of data rank " << d;
          soonest = std::min(soonest, received[i].end - sent[i].begin);
        }
        pairs += sent.size();
      }
    }
  }
  EXPECT_GT(pairs, 60u);
  // Gradients of a step are complete when every rank has sent its own: no rank ends a step before another has begun it.
  for (int a = 0; a < data_ranks * sequence; ++a) {
    for (int b = 0; b < data_ranks * sequence; ++b) {
      std::vector<TimelineSpan> steps[2];
      for (const int which : {0, 1}) {
        const int rank = which == 0 ? a : b;
        for (const TimelineSpan& span :
             rows.at({rank / sequence, fmt::format("sequence rank {}", rank % sequence)}).spans) {
          if (span.name == "step") steps[which].push_back(span);
        }
      }
      for (std::size_t i = 0; i < steps[0].size(); ++i) {
        EXPECT_GE(steps[0][i].end, steps[1][i].begin - errors[a] - errors[b]) << "step " << i;
      }
    }
  }
  std::cout << fmt::format(
      "{} messages; the fastest arrived {:.0f} us after its post; clocks up to {:.0f} ms apart, errors up to {:.0f} "
      "us\n",
      pairs, soonest, farthest * 1e-3, *std::ranges::max_element(errors));
}

TEST_F(MpiTimeline, OfARunThatFailsIsAFileForEachProcessByOneClock) {
  std::ofstream(at("trace.json")) << "mine";
  ChildResult result = traced(1, 2);
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_EQ(content_of(at("trace.json")), "mine");
  fs::remove(at("trace.json"));
  std::ofstream(at("trace.rank1.json")) << "mine";
  result = traced(1, 2);
  expect_end(result, 2, {"trace.rank1.json"});
  EXPECT_EQ(content_of(at("trace.rank1.json")), "mine");
  fs::remove(at("trace.rank1.json"));

  ::setenv("RINGTRAIN_FAULT", "1:ring keys and values:9:throw", 1);
  result = traced(1, 2);
  ::unsetenv("RINGTRAIN_FAULT");
  expect_end(result, 5, {"timeline is in trace.rank0.json"});
  EXPECT_FALSE(fs::exists(at("trace.json")));
  std::vector<double> begins;
  for (const int rank : {0, 1}) {
    const std::string name = fmt::format("trace.rank{}.json", rank);
    const json clocks = file(name).at("otherData").at("clocks");
    ASSERT_EQ(clocks.size(), 1u);
    EXPECT_EQ(clocks[0].at("rank"), rank);
    const auto rows = rows_of(at(name));
    EXPECT_FALSE(rows.contains({0, fmt::format("sequence rank {}", 1 - rank)}));
    const TimelineRow& row = rows.at({0, fmt::format("sequence rank {}", rank)});
    ASSERT_GE(row.count("step"), 1u);
    begins.push_back(std::ranges::find(row.spans, "step", &TimelineSpan::name)->begin);
  }
  EXPECT_NEAR(begins[0], begins[1], 500e3);
}

}  // namespace
}  // namespace ringtrain::testing
