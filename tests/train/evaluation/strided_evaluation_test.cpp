// Evaluation by windows that move by a stride, and of whole short documents: each token is scored once, with the
// context of its window.
#include <algorithm>
#include <cmath>
#include <set>

#include "data/loader.h"
#include "tests/train/evaluation/evaluation_fixture.h"

namespace ringtrain::testing {
namespace {

TEST_F(EvaluationTest, AStrideScoresEveryTokenOfWholeDocumentsOnce) {
  const auto file = tokens(long_text);
  const auto offsets = file->document_offsets();
  for (const auto& [length, stride] : {std::pair{50, 20}, {50, 49}, {50, 1}, {2, 1}, {1000, 7}}) {
    const EvaluationRequest request{{length}, 8, 20, stride};
    check_request(request, "flags");
    const EvaluationTargets targets = choose_targets(*file, request);
    EXPECT_EQ(targets.documents, 30);  // the validation part
    std::map<std::int64_t, int> scored;
    for (const TargetSpan& span : spans_of(*file, targets, length)) {
      const TargetBlock& block = targets.blocks[span.block];
      const std::int64_t begin = offsets[block.document];
      EXPECT_EQ(block.end + 1, offsets[static_cast<std::size_t>(block.document) + 1]);
      EXPECT_EQ((span.begin - begin) % stride, 0);
      EXPECT_LT(span.length, length);  // the window's last token is only a target
      EXPECT_LE(span.begin + span.length, block.end);
      for (std::int64_t i = 0; i < span.targets; ++i) ++scored[span.begin + span.length - i];
    }
    for (std::size_t d = 10; d < 40; ++d) {
      EXPECT_EQ(scored.count(offsets[d]), 0u) << "nothing comes before a document's first token";
      for (std::int64_t at = offsets[d] + 1; at < offsets[d + 1]; ++at) EXPECT_EQ(scored[at], 1) << at;
    }
  }
  error_of(ExitCode::usage, [] { check_request({{16, 32}, 8, 20, 16}, "flags"); });
  error_of(ExitCode::usage, [] { check_request({{16, 32}, 8, 20, -1}, "flags"); });
}

// Brute force: a separate model for every single token. It reads the window of that token, cut off before it.
TEST_F(EvaluationTest, AStrideGivesEachTokenTheContextOfItsWindow) {
  TextPlan plan = long_text;
  plan.documents = 5;
  plan.validation_documents = 3;
  plan.weights = true;
  plan.longest = 70;
  const auto file = tokens(plan);
  const auto offsets = file->document_offsets();
  const Config config = tiny("none", {"model.initializer_range=0.3"});
  constexpr std::int64_t length = 24, stride = 10;
  double nll = 0, weight = 0;
  std::int64_t scored = 0;
  on_ranks(config, {length}, [&](RankState& state) {
    initialize(state);
    for (std::size_t d = 2; d < 5; ++d) {
      for (std::int64_t token = 1; token < offsets[d + 1] - offsets[d]; ++token) {
        // Window k has tokens [k * stride, k * stride + length); the first one with this token scores it.
        const std::int64_t window = token < length ? 0 : (token - length) / stride + 1;
        const std::int64_t begin = offsets[d] + window * stride;
        load_spans(state.batch, *file, {&begin, 1}, offsets[d] + token - begin, 1, state.shard);
        const TensorView values = state.evaluation_nll.view().prefix({1, state.batch.T});
        state.model->evaluate(state.batch, values);
        float w = 0;
        file->read_weights(offsets[d] + token, {&w, 1});
        nll += static_cast<double>(w) * values.as<double>()[state.batch.T - 1];
        weight += static_cast<double>(w);
        scored += w > 0;
      }
    }
  });
  const auto result = evaluate(config, *file, {{length}, 8, 20, stride}, initialize).at(0);
  EXPECT_EQ(result.targets, scored);
  EXPECT_NEAR(result.nll.value, nll / weight, 1e-12 * nll / weight);
  // The stride matters, and so does the length.
  EXPECT_GT(std::abs(evaluate(config, *file, {{length}, 8, 20, 1}, initialize)[0].nll.value - result.nll.value), 1e-6);
}

TEST_F(EvaluationTest, AStrideDoesNotDependOnTheMesh) {
  expect_equal_on({{1, 2, "zigzag"}, {2, 3, "striped"}, {3, 2, "contiguous"}, {1, 8, "zigzag"}}, *tokens(long_text),
                  {{17, 64}, 8, 20, 9});
}

TEST_F(EvaluationTest, WindowsThatDoNotOverlapLeaveTheirFirstTokensOut) {
  const auto file = tokens(long_text);
  const auto offsets = file->document_offsets();
  const EvaluationRequest request{{50}, 8, 20, 50};
  check_request(request, "flags");
  const EvaluationTargets targets = choose_targets(*file, request);
  std::map<std::int64_t, int> scored;
  for (const TargetSpan& span : spans_of(*file, targets, 50)) {
    EXPECT_LE(span.targets, span.length);
    for (std::int64_t i = 0; i < span.targets; ++i) ++scored[span.begin + span.length - i];
  }
  for (std::size_t d = 10; d < 40; ++d) {
    for (std::int64_t at = offsets[d]; at < offsets[d + 1]; ++at) {
      EXPECT_EQ(scored[at], (at - offsets[d]) % 50 == 0 ? 0 : 1) << at;
    }
  }
  error_of(ExitCode::usage, [] { check_request({{50, 100}, 8, 20, 50}, "flags"); });
  error_of(ExitCode::usage, [] { check_request({{50}, 8, 20, 51}, "flags"); });
}

TEST_F(EvaluationTest, ShortDocumentsAreScoredWhole) {
  const auto file = tokens(long_text);
  const auto offsets = file->document_offsets();
  std::int64_t shortest = INT64_MAX, longest = 0;
  for (std::size_t d = 10; d < 40; ++d) {
    shortest = std::min(shortest, offsets[d + 1] - offsets[d]);
    longest = std::max(longest, offsets[d + 1] - offsets[d]);
  }
  const std::int64_t most = (shortest + longest) / 2;
  EvaluationRequest request{{most}, 8, 1000, most};
  request.short_documents = true;
  const EvaluationTargets targets = choose_targets(*file, request);
  std::set<std::int64_t> seen;
  for (const TargetSpan& span : spans_of(*file, targets, most)) {
    const std::int64_t document = targets.blocks[span.block].document;
    EXPECT_TRUE(seen.insert(document).second);
    EXPECT_EQ(span.begin, offsets[document]);
    EXPECT_EQ(span.length, offsets[document + 1] - offsets[document] - 1);
    EXPECT_EQ(span.targets, span.length);
  }
  for (std::int64_t d = 10; d < 40; ++d) EXPECT_EQ(seen.contains(d), offsets[d + 1] - offsets[d] <= most) << d;
  request.target_blocks = 2;
  EXPECT_EQ(choose_targets(*file, request).documents, 2);
  request.context_lengths = {2};
  request.stride = 2;
  expect_error(ExitCode::data, "of 2 to 2 tokens", [&] { choose_targets(*file, request); });
}

TEST_F(EvaluationTest, ARunScoresShortDocumentsWhole) {
  TextPlan short_text = long_text;
  short_text.shortest = 2;
  short_text.longest = 20;
  const std::string data = write_tokens("corpus.h5", short_text);
  const Config config = tiny(
      data, {"training.steps=1", "evaluation.interval=1", "evaluation.whole_documents=true", "data.packing=whole"});
  EXPECT_EQ(config.evaluation.context_lengths, std::vector<std::int64_t>{config.training.seq_len});
  run(config, "run");
  const auto lines = metrics("run", "evaluation");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].at("stride"), config.training.seq_len);
}

TEST_F(EvaluationTest, KeysThatLeaveWeightsAsTheyAreMayBeSet) {
  const std::string data = write_tokens("corpus.h5", long_text);
  run(tiny(data, {"training.steps=1"}), "run");
  EvaluationOptions options = evaluation_of("run", data, {{64}, 8, 4});
  const double plain = evaluate_on_threads(options).results.at(0).nll.value;
  options.settings = {"model.rope_theta=100"};
  EXPECT_NE(evaluate_on_threads(options).results.at(0).nll.value, plain);
  options.settings = {"model.hidden_size=8"};
  expect_error(ExitCode::usage, "--set model.hidden_size", [&] { evaluate_on_threads(options); });
}

TEST_F(EvaluationTest, AStridesReportSaysSo) {
  const std::string data = write_tokens("corpus.h5", long_text);
  run(tiny(data, {"training.steps=1"}), "run");
  constexpr std::int64_t default_targets = EvaluationOptions::of_the_checkpoint;
  EvaluationOptions options = evaluation_of("run", data, {{16, 64}, default_targets, default_targets, 8});
  const EvaluationSummary summary = evaluate_on_threads(options);
  const auto json = evaluation_json(summary);
  EXPECT_EQ(json.at("stride"), 8);
  EXPECT_EQ(json.at("documents"), 30);
  EXPECT_FALSE(json.contains("target_blocks"));
  EXPECT_TRUE(holds(evaluation_table(summary), "move by 8 tokens"));
  options.request.stride = 16;
  expect_error(ExitCode::usage, "--stride", [&] { evaluate_on_threads(options); });
}

}  // namespace
}  // namespace ringtrain::testing
