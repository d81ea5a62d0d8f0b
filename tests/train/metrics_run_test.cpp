// The numbers in a run's metrics: z-scores from the 20th step on, also after a resume that repeated steps; visible
// pairs; MFU according to the formula.

#include "data/token_file.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

class MetricsRun : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    ran("prepare", {"--synthetic", "recall", "--documents", "40", "--length", "400", "--output", "corpus.h5"});
  }
  /// Returns the arguments of a run with these settings.
  static std::vector<std::string> train_arguments(const std::vector<std::string>& settings) {
    std::vector<std::string> arguments{"--config", source_folder() + "/configs/tiny.yaml", "--output", "run"};
    for (const std::string& one : settings) arguments.insert(arguments.end(), {"--set", one});
    return arguments;
  }
  /// Returns the output of a program that succeeds.
  std::string ran(const std::string& program, const std::vector<std::string>& arguments) const {
    const ChildResult result = run_child(program, arguments, folder);
    expect_end(result, 0);
    return result.err;
  }
  /// Returns how many pairs of positions in windows of `length` tokens are in one document, with the key not after the
  /// query: the visible pairs.
  double visible_pairs(const std::vector<std::int64_t>& windows, std::int64_t length) const {
    const auto file = TokenFile::open(at("corpus.h5"));
    const auto offsets = file->document_offsets();
    const auto document = [&](std::int64_t token) {
      std::int64_t index = 0;
      while (offsets[index + 1] <= token) ++index;
      return index;
    };
    double pairs = 0;
    for (const std::int64_t window : windows) {
      for (std::int64_t query = window * length; query < (window + 1) * length; ++query) {
        for (std::int64_t key = window * length; key <= query; ++key) pairs += document(query) == document(key) ? 1 : 0;
      }
    }
    return pairs;
  }
};

TEST_F(MetricsRun, CountsPairsAndFlopsAlsoAfterAResume) {
  const auto arguments = train_arguments({"metrics.peak_flops=2e9", "training.steps=30", "mesh.sequence=2"});
  const std::string printed = ran("train", joined(arguments, {"--stop-after", "24"}));
  EXPECT_TRUE(metrics("run")[22].contains("loss_z"));  // after the 20th step
  EXPECT_FALSE(metrics("run")[10].contains("loss_z"));
  EXPECT_TRUE(metrics("run")[22].contains("grad_norm_z"));
  // As if the process had been killed after step 24, before its last save: steps 21 to 24 are repeated.
  std::filesystem::remove_all(at("run/checkpoints/step-00000024"));
  ran("train", joined(arguments, {"--resume"}));
  EXPECT_EQ(metrics("run").size(), 30U);
  const json last = metrics("run").back();
  const double pairs = visible_pairs(last.at("samples"), 64);
  EXPECT_LT(pairs, 24 * 64 * 65 / 2);  // some windows contain the end of a document
  EXPECT_EQ(last.at("visible_pairs").get<double>(), pairs);
  const double parameters = 26816, flops = 6 * parameters * 24 * 64 + 12 * 2 * 32 * pairs;
  EXPECT_NEAR(last.at("mfu").get<double>(), flops / last.at("seconds").get<double>() / (2 * 2e9), 1e-4);
  EXPECT_TRUE(holds(printed, "mfu: 6 N FLOPs per token and 12 L C per visible pair"));
}

TEST_F(MetricsRun, MfuOfWhatIsFrozenIsThePlans) {
  const std::string printed =
      ran("train",
          train_arguments({"metrics.peak_flops=2e9", "training.steps=3", "training.trainable=[model.layers.1.*]"}));
  const json last = metrics("run").back();
  const double pairs = last.at("visible_pairs").get<double>();
  const double of_a_token = 2 * (26816 + (9280 + 32 + 257 * 32) + 9280);
  const double flops = of_a_token * 24 * 64 + 4 * (2 + 2 * 1) * 32 * pairs;
  EXPECT_NEAR(last.at("mfu").get<double>(), flops / last.at("seconds").get<double>() / 2e9, 1e-4);
  EXPECT_TRUE(holds_all(printed, {"mfu: 2 (N + N_b + N_t) FLOPs per token and 4 (L + 2 L_b) C per visible pair",
                                  "N = 26816, N_b = 17536, N_t = 9280, L_b = 1"}));
}

TEST_F(MetricsRun, WhatMakesTensorBoardsEventsHasAName) {
  const auto arguments = train_arguments({"metrics.tensorboard=true"});
  for (const auto& one : {joined(arguments, {"--dry-run"}), arguments}) {
    expect_end(run_child("train", one, folder), 2, {"with the program in docs/metrics.md"});
  }
  EXPECT_FALSE(std::filesystem::exists(at("run")));
}

}  // namespace
}  // namespace ringtrain::testing
