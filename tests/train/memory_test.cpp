// The memory plan of whole ranks: activations decrease as 1/N, no allocation grows with the whole sequence, a run's
// measured peak equals the plan, and according to the operating system, the process grows by no more than it.
#include <set>
#include <sstream>

#include "layers/model_parameters.h"
#include "parallel/ring/ring.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/engine/memory_check.h"
#include "train/engine/rank_state.h"

namespace ringtrain::testing {
namespace {

class RankMemory : public TrainTest {
 protected:
  Config medium(std::int64_t seq_len, int sequence, const std::vector<std::string>& more = {}) const {
    const std::vector<std::string> common{"model.hidden_size=64",           "model.intermediate_size=128",
                                          "training.dtype=float32",         "training.global_batch_size=1",
                                          "training.feedforward_chunk=512", "training.loss_chunk=256"};
    const std::vector<std::string> lengths{fmt::format("training.seq_len={}", seq_len),
                                           fmt::format("mesh.sequence={}", sequence)};
    return tiny("none", joined(joined(common, lengths), more));
  }
  static std::vector<RankPlan> plan(const Config& config) {
    return plan_ranks(config, make_parameter_table(config.model), training_purpose(config));
  }
};

TEST_F(RankMemory, ActivationsFallAsOneOverTheRing) {
  for (const auto* recompute : {"none", "keep_attention", "full"}) {
    const std::vector<std::string> policy{std::string("training.recompute=") + recompute};
    const auto whole = static_cast<double>(plan(medium(16384, 1, policy))[0].peak[Tag::activations]);
    for (const int ranks : {2, 4, 8}) {
      for (const RankPlan& rank : plan(medium(16384, ranks, policy))) {
        EXPECT_NEAR(static_cast<double>(rank.peak[Tag::activations]) * ranks / whole, 1.0, 0.15)
            << recompute << ", rank " << rank.ranks.front() << " of " << ranks;
      }
    }
  }
}

TEST_F(RankMemory, NoAllocationGrowsWithTheWholeSequence) {
  const auto sizes = [&](int ranks) {
    std::map<std::string, std::size_t> bytes;
    const std::string lengths = fmt::format("evaluation.context_lengths=[32, {}]", 2048 * ranks);
    const auto plans =
        plan(medium(2048 * ranks, ranks, {"evaluation.interval=1", "evaluation.target_tokens=16", lengths}));
    for (const PlannedTensor& tensor : plans[0].tensors) bytes[tensor.name] += tensor.bytes;
    return bytes;
  };
  const auto few = sizes(4), many = sizes(16);
  ASSERT_EQ(few.size(), many.size());
  for (const auto& [name, bytes] : many) {
    // Shares of moments and buckets decrease; nothing else changes, although the sequence is four times as long. (The
    // staging of a reduction is all slices except the rank's own.)
    const double allowed = name.starts_with("gradient reduction") ? 1.3 * static_cast<double>(few.at(name))
                                                                  : static_cast<double>(few.at(name));
    EXPECT_LE(static_cast<double>(bytes), allowed) << name;
  }
}

TEST_F(RankMemory, RingBuffersAndMomentsFollowTheirFormulas) {
  constexpr std::int64_t T = 2048, G = 2, D = 16, bytes = 4;
  const std::int64_t block = 2 * T * G * D * bytes, ids = 4 * T;  // keys and values; document ids
  const auto ring = [&](int ranks) {
    return static_cast<std::int64_t>(plan(medium(T * ranks, ranks))[0].peak[Tag::ring]);
  };
  EXPECT_EQ(ring(1), 0);
  EXPECT_EQ(ring(2), block + ids + block);            // one other block, and its gradient
  EXPECT_EQ(ring(3), 2 * (block + ids) + 3 * block);  // two buffers of each, and the returning one
  EXPECT_EQ(ring(8), ring(3));                        // for any ring
  // Several short sequences for training, one long one for evaluation: the buffers are not both numerous and long.
  const auto with_evaluation = [&](std::int64_t times) {
    const std::string lengths = fmt::format("evaluation.context_lengths=[{}]", T * 4 * times);
    return static_cast<std::int64_t>(plan(medium(T * 4, 4,
                                                 {"training.micro_batch_size=3", "training.global_batch_size=3",
                                                  "evaluation.interval=1", "evaluation.target_tokens=16", lengths}))[0]
                                         .peak[Tag::ring]);
  };
  EXPECT_EQ(with_evaluation(2), 2 * 3 * (block + ids) + 3 * 3 * block);  // evaluation fits in training's buffers
  EXPECT_EQ(with_evaluation(5), 2 * 5 * (block + ids) + 3 * 3 * block);  // no gradient is that long
  std::int64_t moments = 0;
  const Config config = medium(T * 4, 4, {"mesh.data=2", "training.global_batch_size=2"});
  for (const RankPlan& kind : plan(config)) {
    moments += std::ssize(kind.ranks) * static_cast<std::int64_t>(kind.peak[Tag::optimizer]);
  }
  const std::int64_t all = 2 * bytes * make_parameter_table(config.model).count();  // once over all ranks
  EXPECT_GE(moments, all);
  EXPECT_LE(moments, all + 8 * 2 * 64);  // except for alignment
}

TEST_F(RankMemory, APlanThatCannotFitIsRefusedWithItsNumbers) {
  const auto plans = plan(medium(4096, 2));
  const auto needed = static_cast<std::int64_t>(total_bytes(plans));
  require_memory(plans, needed, "");
  expect_error_holding(ExitCode::usage, {std::to_string(needed), "use shorter sequences"},
                       [&] { require_memory(plans, needed - 1, ""); });
}

TEST_F(RankMemory, TheMeasuredPeakByTagIsThePlan) {
  const Config config =
      tiny(write_tokens("text.h5", split_text),
           {"training.steps=3", "mesh.data=2", "mesh.sequence=3", "evaluation.interval=2", "checkpoint.interval=2",
            "evaluation.context_lengths=[16, 64]", "evaluation.target_tokens=8", "training.micro_batch_size=2"});
  run(config, "run");
  const auto lines = metrics("run");
  ASSERT_EQ(lines.size(), 3u);
  for (const auto& line : lines) EXPECT_EQ(line.contains("peak_bytes"), line.at("step") == 1);  // it does not change
  ASSERT_EQ(lines[0].at("peak_bytes").size(), 6u);
  expect_planned_peaks("run", config);
}

TEST_F(RankMemory, RanksThatHoldTheSameArePlannedOnce) {
  // Shards of 9 and 10 tokens, shares of the optimizer that differ by one element.
  const Config config = tiny("none", {"mesh.data=2", "mesh.sequence=4", "evaluation.interval=1",
                                      "evaluation.context_lengths=[18]", "evaluation.target_tokens=4"});
  const ParameterTable table = make_parameter_table(config.model);
  const std::vector<std::int64_t> elements = owned_elements(table, Part::trainable, 8);
  std::set<int> seen;
  ThreadPool pool(1);
  for (const RankPlan& plan : plan(config)) {
    for (const int rank : plan.ranks) {
      EXPECT_TRUE(seen.insert(rank).second);
      const RankState state(config, table, training_purpose(config), rank, Device::cpu(), pool, nullptr);
      EXPECT_EQ(state.allocator.peak().total, plan.peak.total) << rank;
      EXPECT_EQ(state.optimizer->elements(), elements[rank]) << rank;
    }
  }
  EXPECT_EQ(seen.size(), 8u);
  // A million ranks are only a few kinds.
  const auto million = plan(tiny(
      "none", {"mesh.data=1024", "mesh.sequence=1024", "training.seq_len=2048", "training.global_batch_size=1024"}));
  EXPECT_LE(million.size(), 64u);
  std::size_t ranks = 0;
  for (const RankPlan& kind : million) ranks += kind.ranks.size();
  EXPECT_EQ(ranks, std::size_t{1} << 20);
  EXPECT_LT(memory_report(million).size(), std::size_t{1} << 20);
}

// The external reference: the resident memory of the program according to the kernel.
TEST_F(RankMemory, ResidentMemoryOfTheProgramGrowsByNoMoreThanThePlan) {
#ifdef RINGTRAIN_SANITIZED
  GTEST_SKIP() << "sanitizers keep shadows of their own";
#endif
  const Config config = tiny(
      write_tokens("text.h5", {.documents = 30, .shortest = 2000, .longest = 5000, .validation_documents = 10}),
      {"model.hidden_size=128", "model.num_hidden_layers=4", "model.intermediate_size=384", "training.seq_len=16384",
       "training.global_batch_size=2", "training.dtype=float32", "training.recompute=none", "training.steps=2",
       "model.sliding_window=128", "mesh.data=1", "mesh.sequence=2", "training.feedforward_chunk=1024",
       "training.loss_chunk=1024", "evaluation.interval=1", "evaluation.context_lengths=[64, 1024]",
       "evaluation.target_tokens=32", "evaluation.target_blocks=4", "checkpoint.interval=1"});
  write_config(config);
  const ChildResult plain = run_child("train", {"--config", "run.yaml", "--dry-run"}, folder);
  ASSERT_EQ(plain.code, 0) << plain.err;
  std::int64_t planned = 0;  // as printed by --dry-run
  std::istringstream lines(plain.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("memory of all")) planned = std::stoll(line.substr(line.find(':') + 1));
  }
  ASSERT_GT(planned, std::int64_t{256} << 20) << plain.out;  // large enough to show a leak of a few percent
  const ChildResult full = run_child("train", {"--config", "run.yaml"}, folder);
  ASSERT_EQ(full.code, 0) << full.err;
  const std::int64_t growth = full.peak_resident_bytes - plain.peak_resident_bytes;
  const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  RecordProperty("growth", fmt::format("{:.1f} MiB of {:.1f} MiB planned", mib(growth), mib(planned)));
  std::printf("resident memory grew by %.1f MiB; planned were %.1f MiB\n", mib(growth), mib(planned));
  EXPECT_LE(static_cast<double>(growth), 1.05 * static_cast<double>(planned) + static_cast<double>(64 << 20));
  EXPECT_GE(static_cast<double>(growth), 0.7 * static_cast<double>(planned)) << "a plan nobody needs";
}

}  // namespace
}  // namespace ringtrain::testing
