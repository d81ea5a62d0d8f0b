// Which part of a token file is scored, in training and by the program: never training text unless requested, never a
// tenth of a file that was made to be scored; and the metrics, the JSON, and the table name the part.
#include "train/evaluation/scored_part.h"

#include <algorithm>

#include "framework/config/read_config.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class ScoredPartTest : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    trained = write_tokens("trained.h5", {.documents = 60, .longest = 200, .validation_documents = 25});
    plain = write_tokens("plain.h5", {.documents = 60, .longest = 200, .seed = 2});
    other = write_tokens("other.h5", {.documents = 60, .longest = 200, .validation_documents = 6, .seed = 3});
  }
  Config config(const std::string& data, const std::vector<std::string>& more = {}) const {
    return tiny(data, joined({"training.global_batch_size=2", "training.steps=2", "evaluation.interval=2",
                              "evaluation.context_lengths=[16,32]", "evaluation.target_tokens=8",
                              "evaluation.target_blocks=50"},
                             more));
  }
  /// Returns the line of a run's only evaluation.
  nlohmann::json line_of(const std::string& output) const {
    const auto lines = metrics(output, "evaluation");
    EXPECT_EQ(lines.size(), 1u);
    return lines.empty() ? nlohmann::json() : lines[0];
  }
  /// Evaluates a run on a file.
  EvaluationSummary evaluate(const std::string& run, const std::string& data,
                             ScoredPart part = ScoredPart::automatic) const {
    EvaluationOptions options = evaluation_of(run, data, {{16, 32}, 8, 50});
    options.request.part = part;
    return evaluate_on_threads(options);
  }
  static void expect_choice(const EvaluationSummary& summary, ScoredPart part, std::optional<bool> trained_on) {
    EXPECT_EQ(summary.targets.request.part, part);
    EXPECT_EQ(summary.targets.request.trained_on, trained_on);
    const auto json = evaluation_json(summary);
    EXPECT_EQ(json.at("part"), part == ScoredPart::whole ? "whole" : "validation");
    EXPECT_EQ(json.at("trained_on"), trained_on ? nlohmann::ordered_json(*trained_on) : nlohmann::ordered_json());
    EXPECT_TRUE(holds(evaluation_table(summary), "scored: " + part_text(summary.data, summary.targets.request)));
  }
  std::string trained, plain, other;
};

TEST_F(ScoredPartTest, TrainingTextIsScoredOnlyIfTheConfigSaysSo) {
  expect_error_holding(ExitCode::usage,
                       {"plain.h5 has no validation part", "prepare --validation-fraction", "data.validation",
                        "evaluation.on_training_data: true"},
                       [&] { run(config(plain), "refused"); });
  EXPECT_FALSE(fs::exists(at("refused"))) << "before anything starts";
  const Outcome outcome = run(config(plain, {"evaluation.on_training_data=true"}), "asked");
  EXPECT_NE(outcome.logged("evaluation: scores all of " + plain + ", which was trained on"), "");
  EXPECT_EQ(line_of("asked").at("part"), "whole");
  EXPECT_EQ(line_of("asked").at("trained_on"), true);
  // The same text under another name counts as the same text.
  fs::copy_file(plain, at("copy.h5"));
  fs::copy_file(plain + ".manifest.json", at("copy.h5.manifest.json"));
  error_of(ExitCode::usage, [&] { run(config(plain, {"data.validation=" + at("copy.h5")}), "refused"); });
  EXPECT_EQ(run(config(plain, {"evaluation.interval=0"}), "quiet").code, ExitCode::done);
}

TEST_F(ScoredPartTest, AValidationPartIsWhatIsNotTrainedOn) {
  for (const std::string& validation : {std::string(), trained}) {
    const std::string output = validation.empty() ? "own" : "named";
    const Outcome outcome = run(config(trained, {"data.validation=" + validation}), output);
    EXPECT_NE(outcome.logged("evaluation: scores the validation part of " + trained), "");
    EXPECT_EQ(line_of(output).at("part"), "validation");
    EXPECT_EQ(line_of(output).at("trained_on"), false);
  }
  EXPECT_EQ(line_of("own").at("target_hash"), line_of("named").at("target_hash"));
}

TEST_F(ScoredPartTest, AFileThatIsNotTrainedOnIsScoredWhole) {
  Outcome outcome;
  const Log log = [&](const std::string& line) { outcome.logs.push_back(line); };
  const ringtrain::Run ready =
      prepare_run({.config = config(plain, {"data.validation=" + other}), .output = at("run")}, log);
  EXPECT_NE(outcome.logged("evaluation: scores all of " + other + ", which the run did not train on"), "");
  EXPECT_TRUE(holds(dry_run_report(ready), "of all of " + other + ", which the run did not train on"));
  ASSERT_TRUE(ready.evaluation.has_value());
  const EvaluationTargets targets = ready.evaluation.value_or(EvaluationTargets{});
  EXPECT_GT(targets.documents, 6) << "more than its validation part";
  const auto before_that_part = [](const TargetBlock& block) { return block.document < 54; };
  EXPECT_TRUE(std::ranges::any_of(targets.blocks, before_that_part));
  train(ready, log);
  EXPECT_EQ(line_of("run").at("part"), "whole");
  EXPECT_EQ(line_of("run").at("trained_on"), false);
}

TEST_F(ScoredPartTest, EvaluateKnowsWhatItsCheckpointWasTrainedOnAndAFlagOverrides) {
  run(config(trained), "run");
  expect_choice(evaluate("run", trained), ScoredPart::validation, false);
  expect_choice(evaluate("run", other), ScoredPart::whole, false);
  expect_choice(evaluate("run", plain), ScoredPart::whole, false);
  expect_choice(evaluate("run", trained, ScoredPart::whole), ScoredPart::whole, true);
  expect_choice(evaluate("run", other, ScoredPart::validation), ScoredPart::validation, false);
  EXPECT_LE(evaluate("run", other, ScoredPart::validation).targets.documents, 6);
  run(config(other), "next", from(at("run")));  // its manifest does not say what those weights were trained on
  expect_choice(evaluate("next", trained), ScoredPart::validation, false);
  run(config(other, {"lora.rank=2"}), "adapters", from(at("run")));
  expect_choice(evaluate("adapters", trained), ScoredPart::validation, false);
  expect_choice(evaluate("adapters", plain), ScoredPart::whole, false);
  expect_error(ExitCode::usage, "plain.h5 has no validation part",
               [&] { evaluate("run", plain, ScoredPart::validation); });

  for (const std::string part : {"auto", "validation", "whole"}) {
    const ChildResult result = run_child("evaluate",
                                         {"--checkpoint", "run", "--data", "other.h5", "--context-lengths", "16",
                                          "--target-tokens", "8", "--part", part, "--output", part + ".json"},
                                         folder);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(holds(result.out, part == "validation" ? "scored: the validation part of other.h5"
                                                       : "scored: all of other.h5, which the run did not train on"));
    EXPECT_EQ(nlohmann::json::parse(content_of(at(part + ".json"))).at("part"),
              part == "validation" ? "validation" : "whole");
  }
}

TEST_F(ScoredPartTest, OfSeveralTrainingFilesEachIsKnownAsLongAsTheyAreThere) {
  Config both = config(trained, {"evaluation.interval=0"});
  both.data.train.push_back({other, 2.0});
  run(both, "run");
  expect_choice(evaluate("run", trained), ScoredPart::validation, false);
  expect_choice(evaluate("run", other), ScoredPart::validation, false);
  expect_choice(evaluate("run", plain), ScoredPart::whole, false);
  fs::remove(trained + ".manifest.json");
  expect_choice(evaluate("run", other), ScoredPart::validation, false);
  expect_choice(evaluate("run", plain), ScoredPart::whole, std::nullopt);
  EXPECT_TRUE(holds(evaluation_table(evaluate("run", plain)), "whether it was trained on is not known"));
}

}  // namespace
}  // namespace ringtrain::testing
