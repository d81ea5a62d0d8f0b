// One checkpoint against another: KL and nll of both on the same targets.
#include <cmath>
#include <fstream>

#include "data/loader.h"
#include "extras/long_context/comparison.h"
#include "layers/logits_pass.h"
#include "tests/support/paths.h"
#include "tests/train/evaluation/evaluation_fixture.h"
#include "train/evaluation/evaluation_report.h"

namespace ringtrain::testing {
namespace {

class ComparisonTest : public TextTest {
 protected:
  ComparisonTest()
      : TextTest({.documents = 60, .shortest = 80, .longest = 200, .validation_documents = 30, .weights = true}) {}
  std::string model(const std::string& name, int seed) {
    run(tiny(data, {"training.steps=1", "model.initializer_range=0.4", fmt::format("training.seed={}", seed)}), name);
    return at(name);
  }
  EvaluationOptions options(const std::string& checkpoint) {
    EvaluationOptions options;
    options.checkpoint = checkpoint;
    options.data = data;
    options.request = {{16, 70}, 8, 30};
    options.request.by_position = true;
    return options;
  }
  struct Found {
    EvaluationSummary summary;
    nlohmann::json comparison;  // one a length
  };
  static Found evaluate(EvaluationOptions options, const std::string& against) {
    options.metrics = {against_model(against)};
    EvaluationSummary summary = evaluate_on_threads(options);
    nlohmann::json results = evaluation_json(summary).at("against").at("results");
    return {std::move(summary), std::move(results)};
  }
};

TEST_F(ComparisonTest, AModelDivergesFromItselfByExactlyNothing) {
  const std::string one = model("run", 1);
  for (const int ranks : {1, 3}) {
    EvaluationOptions same = options(one);
    same.mesh.sequence = ranks;
    const nlohmann::json comparison = evaluate(same, one).comparison;
    ASSERT_EQ(comparison.size(), 2U);
    for (const nlohmann::json& length : comparison) {
      EXPECT_EQ(length.at("kl"), 0);
      EXPECT_EQ(length.at("difference_nll"), 0);
      EXPECT_FALSE(length.at("by_position").empty());
      for (const nlohmann::json& at : length.at("by_position")) EXPECT_EQ(at.at("kl"), 0);
    }
  }
}

/// Returns a model's probabilities of 23 tokens, by block and position in a window of this many tokens.
std::vector<std::vector<double>> distributions(const std::string& path, const TokenFile& file,
                                               const std::vector<TargetBlock>& blocks, std::int64_t length) {
  std::vector<std::vector<double>> rows;
  on_model(path, length, [&](RankState& state) {
    for (const TargetBlock& block : blocks) {
      const std::int64_t begin = block.end - length;
      load_spans(state.batch, file, {&begin, 1}, length, length, state.shard);
      const auto pass = state.model->begin_logits(state.batch);
      const TensorView logits = pass.rows(0, length);
      for (std::int64_t t = 0; t < length; ++t) {
        std::vector<double>& row = rows.emplace_back(logits.as<double>() + t * 23, logits.as<double>() + (t + 1) * 23);
        double sum = 0;
        for (double& x : row) sum += x = std::exp(x);
        for (double& x : row) x /= sum;
      }
    }
  });
  return rows;
}

// The reference holds each model's logits of a whole window, and sums probabilities according to their definition.
TEST_F(ComparisonTest, EqualsAWitnessWithBothDistributions) {
  const std::string one = model("one", 1), two = model("two", 2);
  const auto [summary, comparison] = evaluate(options(one), two);
  const EvaluationSummary single = evaluate_on_threads(options(one));
  const auto file = TokenFile::open(data);
  constexpr std::int64_t length = 70, targets = 8;
  struct Sums {
    double weight = 0, difference = 0, kl = 0;
  };
  Sums of_targets;
  std::map<std::int64_t, Sums> buckets;
  const auto of_one = distributions(one, *file, summary.targets.blocks, length),
             of_two = distributions(two, *file, summary.targets.blocks, length);
  for (std::size_t b = 0; b < summary.targets.blocks.size(); ++b) {
    for (std::int64_t t = 0; t < length; ++t) {
      const std::int64_t index = summary.targets.blocks[b].end - length + t + 1;
      std::int32_t label = 0;
      float weight = 0;
      file->read(index, {&label, 1});
      file->read_weights(index, {&weight, 1});
      const auto &p = of_two[b * length + static_cast<std::size_t>(t)],
                 &q = of_one[b * length + static_cast<std::size_t>(t)];
      double kl = 0;
      for (std::size_t v = 0; v < 23; ++v) kl += p[v] * std::log(p[v] / q[v]);
      const auto w = static_cast<double>(weight);
      const double difference = std::log(p[static_cast<std::size_t>(label)] / q[static_cast<std::size_t>(label)]);
      const auto add = [&](Sums& to) {
        to.weight += w;
        to.difference += w * difference;
        to.kl += w * kl;
      };
      if (t >= length - targets) add(of_targets);
      std::int64_t last = 1;
      while (last < t + 1) last *= 2;
      add(buckets[std::min(last, length)]);
    }
  }
  EXPECT_GT(of_targets.kl / of_targets.weight, 1e-3);
  const auto expect_sums = [](const nlohmann::json& at, const Sums& sums) {
    EXPECT_NEAR(at.at("kl"), sums.kl / sums.weight, 1e-12) << at;
    EXPECT_NEAR(at.at("difference_nll"), sums.difference / sums.weight, 1e-12) << at;
  };
  const nlohmann::json& found = comparison.at(1);
  expect_sums(found, of_targets);
  ASSERT_EQ(found.at("by_position").size(), buckets.size());
  for (const nlohmann::json& at : found.at("by_position")) expect_sums(at, buckets.at(at.at("last")));
  for (std::size_t i = 0; i < 2; ++i) {  // the earlier content is unchanged
    EXPECT_NEAR(summary.results[i].nll.value, single.results[i].nll.value, 1e-13);
    EXPECT_NEAR(summary.results[i].nll.value - comparison[i].at("against_nll").get<double>(),
                comparison[i].at("difference_nll"), 1e-12);
  }
  EXPECT_NE(evaluation_table(summary).find("Against " + open_model(two).path), std::string::npos);
}

TEST_F(ComparisonTest, DivergenceGrowsWithTheErrorOfTheta) {
  const std::string one = model("run", 1);
  double before = 0;
  for (const char* const theta : {"450000", "100000", "20000"}) {  // the model's own is 500000
    EvaluationOptions wrong = options(one);
    wrong.settings = {std::string("model.rope_theta=") + theta};
    const double kl = evaluate(wrong, one).comparison.at(1).at("kl");
    EXPECT_GT(kl, 1.5 * before) << theta;
    EXPECT_GT(kl, 1e-9) << theta;
    before = kl;
  }
}

TEST_F(ComparisonTest, DoesNotDependOnTheMesh) {
  const std::string one = model("one", 1), two = model("two", 2);
  for (const auto& [data_ranks, sequence, shards] : {std::tuple{1, 4, false}, {2, 2, true}, {4, 1, true}}) {
    EvaluationOptions other = options(one);
    other.mesh.data = data_ranks;
    other.mesh.sequence = sequence;
    other.shard_weights = shards;
    other.request.target_blocks = 29;  // so that some data rank has no span at the end
    EvaluationOptions single = options(one);
    single.request.target_blocks = 29;
    const Found expected = evaluate(single, two), found = evaluate(other, two);
    for (std::size_t i = 0; i < 2; ++i) {
      const nlohmann::json &at = found.comparison[i], &alike = expected.comparison[i];
      EXPECT_NEAR(at.at("kl"), alike.at("kl"), 1e-12);
      EXPECT_NEAR(at.at("difference_nll"), alike.at("difference_nll"), 1e-11);
      EXPECT_NEAR(at.at("kl_ci95").at(0), alike.at("kl_ci95").at(0), 1e-11);
    }
  }
}

TEST_F(ComparisonTest, OtherVocabulariesAreRefused) {
  const std::string one = model("one", 1);
  const std::string more = write_tokens("more.h5", {.vocab_size = 29, .documents = 60, .shortest = 80, .longest = 200});
  run(tiny(more, {"training.steps=1", "model.vocab_size=29"}), "wide");
  expect_error_holding(ExitCode::usage, {"29 tokens", "23"}, [&] { evaluate(options(one), at("wide")); });
}

// If two models' tokenizers begin texts differently, each would read windows in a form that it does not know.
TEST_F(ComparisonTest, ModelsThatBeginTextsInTwoWaysAreComparedOnlyAsAsked) {
  const auto begun_by = [&](const std::string& name, const char* post_processor) {
    run(tiny(data, {"training.steps=1", "model.vocab_size=601", "model.initializer_range=0.4"}), name);
    nlohmann::json tokenizer =
        nlohmann::json::parse(content_of(source_folder() + "/tests/tokenizers/tiny/byte_level.json"));
    tokenizer["post_processor"] = nlohmann::json::parse(post_processor);
    std::filesystem::create_directory(at(name + "/tokenizer"));
    std::ofstream(at(name + "/tokenizer/tokenizer.json")) << tokenizer.dump();
    return at(name);
  };
  const char* const none = "null";
  const char* const begins = R"({"type": "TemplateProcessing", "special_tokens": {"x": {"ids": [0]}},
                                 "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}]})";
  const std::string plain = begun_by("plain", none), one = begun_by("one", begins), two = begun_by("two", begins);
  expect_error_holding(ExitCode::usage,
                       {"--against " + one, ": its tokenizer begins a text with token 0, that of " + plain,
                        " with no token", "--begin-token none or --begin-token ID"},
                       [&] { evaluate(options(plain), one); });
  EXPECT_EQ(evaluate(options(one), two).comparison.size(), 2U);
  for (const std::int64_t asked : {-1, 0}) {
    EvaluationOptions both = options(plain);
    both.begin_token = asked;
    EXPECT_EQ(evaluate(both, one).summary.targets.request.begin_token.has_value(), asked == 0);
  }
}

}  // namespace
}  // namespace ringtrain::testing
