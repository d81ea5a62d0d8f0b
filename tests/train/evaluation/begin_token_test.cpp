// Evaluation of models whose tokenizer begins each text with a token: it is at position 0 of every window, and the
// scored tokens are the same as without it. The reference writes each window to a separate file.
#include <cmath>
#include <fstream>

#include "data/loader.h"
#include "data/token_manifest.h"
#include "data/tokens_in_memory.h"
#include "tests/train/evaluation/evaluation_fixture.h"

namespace ringtrain::testing {
namespace {

constexpr std::int32_t document_start = 21;  // of a vocabulary of 23, whose last token ends a document

class BeginTokenEvaluation : public EvaluationTest {
 protected:
  Config config = tiny("none", {"model.initializer_range=0.3"});

  std::vector<TokenScore> scores(const TokenFile& file, const EvaluationRequest& request,
                                 const std::vector<std::string>& settings = {}) {
    std::vector<TokenScore> found;
    on_ranks(tiny("none", joined({"model.initializer_range=0.3"}, settings)), request.context_lengths,
             [&](RankState& state) {
               initialize(state);
               std::vector<TokenScore> own;
               evaluate_targets(state, file, choose_targets(file, request), nullptr, nullptr, &own);
               if (state.rank == 0) found = own;
             });
    return found;
  }
  /// Returns the nll of the last token of a text, which a separate model reads.
  double nll_of_last(std::vector<std::int32_t> text) {
    const std::int64_t tokens = std::ssize(text);
    const auto file = tokens_in_memory("window", {.vocab_size = 23, .tokens = std::move(text), .offsets = {0, tokens}});
    double nll = 0;
    on_ranks(config, {128}, [&](RankState& state) {
      initialize(state);
      const std::int64_t from = 0;
      load_spans(state.batch, *file, {&from, 1}, tokens - 1, 1, state.shard);
      const TensorView values = state.evaluation_nll.view().prefix({1, state.batch.T});
      state.model->evaluate(state.batch, values);
      nll = values.as<double>()[state.batch.T - 1];
    });
    return nll;
  }
};

TEST_F(BeginTokenEvaluation, ReplacesTheFirstTokenOfEachWindow) {
  const auto file = tokens(long_text);
  EvaluationRequest request{{16, 40}, 4, 5};
  const EvaluationTargets without = choose_targets(*file, request);
  request.begin_token = document_start;
  EXPECT_EQ(choose_targets(*file, request).hash, without.hash);
  const std::vector<TokenScore> found = scores(*file, request);
  ASSERT_EQ(found.size(), 2u * 4 * 5);
  std::size_t i = 0;
  for (const std::int64_t length : request.context_lengths) {
    for (const TargetBlock& block : without.blocks) {
      for (std::int64_t target = block.end - 3; target <= block.end; ++target, ++i) {
        EXPECT_EQ(found[i].index, target);
        std::vector<std::int32_t> window(target + 1 - (block.end - length));
        file->read(block.end - length, window);
        window.front() = document_start;
        EXPECT_NEAR(found[i].nll, nll_of_last(window), 1e-12) << i;
      }
    }
  }
  const std::vector<TokenScore> on_mesh = scores(*file, request, {"mesh.sequence=3", "mesh.data=2"});
  for (i = 0; i < found.size(); ++i) EXPECT_NEAR(on_mesh[i].nll, found[i].nll, 1e-11) << i;
}

TEST_F(BeginTokenEvaluation, ADocumentWithoutItHasItBeforeItsFirstWindow) {
  TextPlan plan = long_text;
  plan.documents = 3;
  plan.validation_documents = 3;
  plan.longest = 60;
  const auto file = tokens(plan);
  constexpr std::int64_t length = 24, stride = 10;
  EvaluationRequest request{{length}, 8, 20, stride};
  const EvaluationTargets without = choose_targets(*file, request);
  request.begin_token = document_start;
  EXPECT_EQ(choose_targets(*file, request).hash, without.hash);
  const std::vector<TokenScore> found = scores(*file, request, {"mesh.sequence=2"});
  const auto offsets = file->document_offsets();
  EXPECT_EQ(std::ssize(found), file->token_count() - 3);  // all except each document's first
  for (const TokenScore& score : found) {
    const std::int64_t first = offsets[score.document], token = score.index - first;
    const std::int64_t window = token < length ? 0 : (token - length) / stride + 1;
    std::vector<std::int32_t> text(token + 1 - window * stride);
    file->read(first + window * stride, text);
    if (window == 0) {
      text.insert(text.begin(), document_start);
    } else {
      text.front() = document_start;
    }
    EXPECT_NEAR(score.nll, nll_of_last(text), 1e-12) << score.index;
  }
  // Documents that begin with the token of the request are read unchanged.
  std::int32_t own = 0;
  file->read(0, {&own, 1});
  request.begin_token = own;
  const auto spans = spans_of(*file, choose_targets(*file, request), length);
  EXPECT_EQ(spans.front().begin, 0);
  EXPECT_EQ(spans.front().length, std::min(length, offsets[1]) - 1);
}

TEST_F(BeginTokenEvaluation, IsWhatTheFileSays) {
  EvaluationRequest request{{16}, 4, 5};
  const auto file = tokens(long_text);
  EXPECT_TRUE(holds(take_begin_token(request, *file), "does not say which token begins a text"));
  EXPECT_FALSE(request.begin_token);
  const auto with = [&](std::vector<std::int64_t> start) {
    TokenManifest manifest = read_manifest(file->path());
    manifest.document_start = std::move(start);
    std::ofstream(manifest_path(file->path())) << to_json(manifest);
    return TokenFile::open(file->path());
  };
  EXPECT_EQ(take_begin_token(request, *with({})), "");
  EXPECT_FALSE(request.begin_token);
  EXPECT_TRUE(holds(take_begin_token(request, *with({5})), "each window begins with token 5"));
  EXPECT_EQ(request.begin_token, 5);
  // A run's own evaluations do the same, and so does evaluate unless the user requests otherwise.
  run(tiny(file->path(), {"training.steps=2", "evaluation.interval=2", "evaluation.context_lengths=[16]",
                          "evaluation.target_tokens=4", "evaluation.target_blocks=5", "model.initializer_range=0.3"}),
      "run");
  EvaluationOptions options = evaluation_of("run", file->path(), {{16}, 4, 5});
  const EvaluationSummary recorded = evaluate_on_threads(options);
  EXPECT_EQ(recorded.targets.request.begin_token, 5);
  const auto last = metrics("run", "evaluation").back();
  EXPECT_EQ(last["begin_token"], 5);
  EXPECT_NEAR(last["results"][0]["nll"].get<double>(), recorded.results[0].nll.value, 1e-12);
  options.begin_token = 5;
  EXPECT_EQ(evaluate_on_threads(options).results[0].nll.value, recorded.results[0].nll.value);
  options.begin_token = -1;
  const EvaluationSummary none = evaluate_on_threads(options);
  EXPECT_EQ(none.targets.request.begin_token, std::nullopt);
  EXPECT_EQ(none.targets.hash, recorded.targets.hash);
  EXPECT_GT(std::abs(none.results[0].nll.value - recorded.results[0].nll.value), 1e-6);
  options.begin_token = 23;
  expect_error(ExitCode::usage, "--begin-token", [&] { evaluate_on_threads(options); });
}

}  // namespace
}  // namespace ringtrain::testing
