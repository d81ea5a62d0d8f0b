// Evaluation at several context lengths: which tokens are scored, that they are the same at every length, on every
// mesh, and by position.
#include <algorithm>
#include <cmath>
#include <set>

#include "data/loader.h"
#include "kernels/elementwise.h"
#include "tests/train/evaluation/evaluation_fixture.h"

namespace ringtrain::testing {
namespace {

TEST_F(EvaluationTest, TargetsLieInOneValidationDocumentBehindTheLongestContext) {
  const auto file = tokens(long_text);
  const auto offsets = file->document_offsets();
  for (const std::int64_t wanted : {1, 7, 40, 100000}) {
    const EvaluationRequest request{{16, 50, 100}, 8, wanted};
    const EvaluationTargets targets = choose_targets(*file, request);
    EXPECT_LE(static_cast<std::int64_t>(targets.blocks.size()), wanted);
    std::set<std::int64_t> documents, covered;
    std::map<std::int64_t, std::int64_t> per_document;
    for (const TargetBlock& block : targets.blocks) {
      const auto d = static_cast<std::size_t>(block.document);
      EXPECT_GE(block.document, 10);           // the first validation document
      EXPECT_GE(block.end - offsets[d], 100);  // at least Lmax tokens before e
      EXPECT_LT(block.end, offsets[d + 1]);
      documents.insert(block.document);
      ++per_document[block.document];
      for (std::int64_t i = 0; i < 8; ++i) EXPECT_TRUE(covered.insert(block.end - i).second) << "scored twice";
    }
    EXPECT_EQ(targets.documents, static_cast<std::int64_t>(documents.size()));
    EXPECT_EQ(targets.request.part, ScoredPart::validation);
    // The maximum number of documents.
    std::int64_t eligible = 0, room = 0;
    for (std::size_t d = 10; d < 40; ++d) {
      const std::int64_t length = offsets[d + 1] - offsets[d];
      if (length <= 100) continue;
      ++eligible;
      room += (length - 1 - 100) / 8 + 1;
    }
    EXPECT_EQ(targets.documents, std::min(eligible, wanted));
    EXPECT_EQ(static_cast<std::int64_t>(targets.blocks.size()), std::min(room, wanted));
  }
}

TEST_F(EvaluationTest, TargetsDependOnlyOnTheFileAndTheRequest) {
  const auto file = tokens(long_text);
  const EvaluationTargets one = choose_targets(*file, {{16, 100}, 8, 20}),
                          same = choose_targets(*file, {{32, 100}, 8, 20});
  EXPECT_EQ(one.blocks, same.blocks);  // shorter lengths change nothing
  EXPECT_EQ(one.hash, same.hash);
  EXPECT_NE(one.hash, choose_targets(*file, {{16, 101}, 8, 20}).hash);
  EXPECT_NE(one.hash, choose_targets(*file, {{16, 100}, 8, 21}).hash);
}

TEST_F(EvaluationTest, AFileWithoutAValidationPartIsUsedWhole) {
  TextPlan plan = long_text;
  plan.validation_documents = 0;
  EXPECT_EQ(choose_targets(*tokens(plan), {{16, 100}, 8, 20}).request.part, ScoredPart::whole);
}

TEST_F(EvaluationTest, WhatCannotBeScoredIsRefused) {
  const auto file = tokens(long_text);
  expect_error(ExitCode::data, "4000", [&] { choose_targets(*file, {{16, 4000}, 8, 20}); });
  error_of(ExitCode::usage, [] { check_request({{16, 32}, 9, 20}, "flags"); });  // M > Lmin / 2
  error_of(ExitCode::usage, [] { check_request({{32, 16}, 4, 20}, "flags"); });
  error_of(ExitCode::usage, [] { check_request({{16, 16}, 4, 20}, "flags"); });
  error_of(ExitCode::usage, [] { check_request({{}, 4, 20}, "flags"); });
  error_of(ExitCode::usage, [] { check_request({{16}, 0, 20}, "flags"); });
  error_of(ExitCode::usage, [] { check_request({{16}, 4, 0}, "flags"); });
  check_request({{16}, 8, 1}, "flags");
}

TEST_F(EvaluationTest, AUniformModelHasThePerplexityOfItsVocabulary) {
  TextPlan plan = long_text;
  plan.weights = true;
  const auto file = tokens(plan);
  const auto results = evaluate(tiny("none", {"mesh.sequence=3", "mesh.data=2"}), *file, {{16, 33, 100}, 8, 30},
                                [](RankState& state) { state.parameters.clear_weights(); });
  ASSERT_EQ(results.size(), 3u);
  for (const LengthResult& result : results) {
    EXPECT_NEAR(result.perplexity, 23, 23 * 1e-12);
    EXPECT_NEAR(result.delta.value, 0, 1e-12);
    EXPECT_NEAR(result.nll.ci95.high - result.nll.ci95.low, 0, 1e-12);
  }
}

/// Sets the weights at random, with the two projections that add to the residual stream at zero: a model that sees only
/// its own token.
void forget_context(RankState& state) {
  initialize_weights(state.stream, state.parameters, 3);
  const auto& all = state.parameters.table().all();
  for (std::size_t id = 0; id < all.size(); ++id) {
    if (all[id].name.ends_with("o_proj.weight") || all[id].name.ends_with("down_proj.weight")) {
      fill(state.stream, state.parameters.weight(static_cast<int>(id)), 0);
    }
  }
}

// The nll of a context-free model is a table of token pairs, so this test sums the targets itself: it would detect any
// other scored token, or one scored twice.
TEST_F(EvaluationTest, AContextFreeModelScoresExactlyTheTargets) {
  TextPlan plan = long_text;
  plan.weights = true;
  const auto file = tokens(plan);
  const Config config = tiny("none", {"model.initializer_range=0.5"});
  const EvaluationRequest request{{16, 47, 100}, 8, 30};
  std::vector<double> embedding;  // [V, C]
  const auto results = evaluate(config, *file, request, [&](RankState& state) {
    forget_context(state);
    const TensorView weight = state.parameters.weight(0);
    embedding.assign(weight.as<double>(), weight.as<double>() + weight.numel());
  });
  const std::size_t V = 23, C = 16;
  const auto nll_of = [&](std::size_t token, std::size_t label) {
    double square = 0, sum = 0, target = 0;
    for (std::size_t c = 0; c < C; ++c) square += embedding[token * C + c] * embedding[token * C + c];
    const double rstd = 1 / std::sqrt(square / static_cast<double>(C) + 1e-5);
    for (std::size_t v = 0; v < V; ++v) {
      double logit = 0;
      for (std::size_t c = 0; c < C; ++c) logit += embedding[token * C + c] * rstd * embedding[v * C + c];
      sum += std::exp(logit);
      if (v == label) target = logit;
    }
    return std::log(sum) - target;
  };
  double nll = 0, weight = 0, bytes = 0;
  std::int64_t scored = 0;
  for (const TargetBlock& block : choose_targets(*file, request).blocks) {
    for (std::int64_t at = block.end - 7; at <= block.end; ++at) {
      std::int32_t pair[2];
      float w = 0;
      file->read(at - 1, pair);
      file->read_weights(at, {&w, 1});
      nll += static_cast<double>(w) * nll_of(static_cast<std::size_t>(pair[0]), static_cast<std::size_t>(pair[1]));
      weight += static_cast<double>(w);
      if (pair[1] != 22) bytes += 2 * static_cast<double>(w);
      scored += w > 0;
    }
  }
  for (const LengthResult& result : results) {
    EXPECT_NEAR(result.nll.value, nll / weight, 1e-12 * nll / weight) << result.context_length;
    EXPECT_NEAR(result.bits_per_byte, nll / std::log(2.0) / bytes, 1e-12 * result.bits_per_byte);
    EXPECT_EQ(result.targets, scored);
  }
}

TEST_F(EvaluationTest, DoesNotDependOnTheMesh) {
  expect_equal_on(
      {{1, 2, "zigzag"}, {2, 1, "zigzag"}, {2, 3, "striped"}, {3, 2, "contiguous"}, {8, 1, "zigzag"}, {1, 8, "zigzag"}},
      *tokens(long_text), {{17, 64, 100}, 8, 29});
}

TEST_F(EvaluationTest, DuringTrainingEqualsTheProgramOnTheSameWeights) {
  const std::string data = write_tokens("corpus.h5", long_text);
  const Config config =
      tiny(data, {"training.steps=4", "evaluation.interval=2", "evaluation.context_lengths=[16, 32, 100]",
                  "evaluation.target_tokens=8", "evaluation.target_blocks=25", "mesh.data=2", "mesh.sequence=2"});
  run(config, "run");
  const auto lines = metrics("run", "evaluation");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].at("step"), 2);
  EXPECT_EQ(lines[1].at("step"), 4);

  EvaluationOptions options = evaluation_of("run", data, {{16, 32, 100}, 8, 25});
  options.mesh.sequence = 3;
  const EvaluationSummary summary = evaluate_on_threads(options);
  EXPECT_EQ(summary.targets.hash, lines[1].at("target_hash").get<std::string>());
  EXPECT_EQ(summary.targets.documents, lines[1].at("documents"));
  EXPECT_EQ(summary.trained_length, 37);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& result = lines[1].at("results").at(i);
    EXPECT_NEAR(summary.results[i].nll.value, result.at("nll").get<double>(), 1e-12 * summary.results[i].nll.value);
    EXPECT_EQ(result.at("beyond_trained_length").get<bool>(), i == 2);
  }
  const std::string table = evaluation_table(summary);
  EXPECT_TRUE(holds(table, "100*"));
  EXPECT_EQ(table.find("No confidence intervals"),
            summary.targets.documents < 20 ? table.rfind("No confidence intervals") : std::string::npos);
  // and training with evaluations in between is the training without
  Config quiet = config;
  quiet.evaluation.interval = 0;
  run(quiet, "quiet");
  EXPECT_EQ(losses("run"), losses("quiet"));
}

TEST_F(EvaluationTest, Gpt2IsRefusedBeyondItsTable) {
  const std::string data = write_tokens("corpus.h5", long_text);
  run(tiny(data, {"training.steps=1", "model.architecture=gpt2", "model.max_position_embeddings=64",
                  "model.num_key_value_heads=4"}),
      "run");
  EvaluationOptions options = evaluation_of("run", data, {{16, 64}, 8, 25});
  EXPECT_EQ(evaluate_on_threads(options).results.size(), 2u);
  options.request = {{16, 65}, 8, 25};
  expect_error(ExitCode::usage, "64 positions", [&] { evaluate_on_threads(options); });
}

// ---- By position ---------------------------------------------------------------------------------------------------

// The reference sums each window's predictions itself, within bounds that it defines.
TEST_F(EvaluationTest, ByPositionEachPredictionOfAWindowIsInItsBucket) {
  TextPlan plan = long_text;
  plan.weights = true;
  const auto file = tokens(plan);
  const Config config = tiny("none", {"model.initializer_range=0.3"});
  EvaluationRequest request{{24, 100}, 8, 30};
  request.by_position = true;
  const auto results = evaluate(config, *file, request, initialize);
  const std::vector<std::pair<std::int64_t, std::int64_t>> bounds{{1, 1},  {2, 2},   {3, 4},   {5, 8},
                                                                  {9, 16}, {17, 32}, {33, 64}, {65, 100}};
  std::map<std::pair<std::int64_t, std::int64_t>, double> nll, longest, weight;  // by length and first position
  const auto first_of = [&](std::int64_t position) {
    return std::ranges::find_if(bounds, [&](const auto& one) { return position <= one.second; })->first;
  };
  on_ranks(config, {100}, [&](RankState& state) {
    initialize(state);
    for (const TargetBlock& block : choose_targets(*file, request).blocks) {
      for (const std::int64_t length : request.context_lengths) {
        const std::int64_t begin = block.end - length;
        load_spans(state.batch, *file, {&begin, 1}, length, length, state.shard);
        const TensorView values = state.evaluation_nll.view().prefix({1, state.batch.T});
        state.model->evaluate(state.batch, values);
        for (std::int64_t position = 1; position <= length; ++position) {
          float w = 0;
          file->read_weights(begin + position, {&w, 1});
          const double added = static_cast<double>(w) * values.as<double>()[position - 1];
          nll[{length, first_of(position)}] += added;
          weight[{length, first_of(position)}] += static_cast<double>(w);
          if (length == 100 && position > 76) longest[{24, first_of(position - 76)}] += added;
        }
      }
    }
  });
  for (const LengthResult& result : results) {
    ASSERT_EQ(result.by_position.size(), result.context_length == 24 ? 6U : 8U);
    for (std::size_t k = 0; k < result.by_position.size(); ++k) {
      const PositionResult& bucket = result.by_position[k];
      const std::pair at{result.context_length, bucket.first};
      EXPECT_EQ(bucket.first, bounds[k].first);
      EXPECT_EQ(bucket.last, std::min(bounds[k].second, result.context_length));
      EXPECT_NEAR(bucket.nll.value, nll[at] / weight[at], 1e-12);
      const double other = result.context_length == 24 ? longest[at] : nll[at];
      EXPECT_NEAR(bucket.cut.value, (nll[at] - other) / weight[at], 1e-12);
    }
  }
  EXPECT_GT(std::abs(results[0].by_position[0].cut.value), 1e-6);
  EXPECT_EQ(results[1].by_position[3].cut.value, 0);
  // The last targets are scored as without it.
  request.by_position = false;
  const auto plain = evaluate(config, *file, request, initialize);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(plain[i].nll.value, results[i].nll.value);
    EXPECT_EQ(plain[i].targets, results[i].targets);
    EXPECT_TRUE(plain[i].by_position.empty());
  }
}

TEST_F(EvaluationTest, ByPositionDoesNotDependOnTheMesh) {
  EvaluationRequest request{{17, 100}, 8, 29};
  request.by_position = true;
  expect_equal_on({{1, 4, "zigzag"}, {2, 2, "zigzag"}}, *tokens(long_text), request);
}

}  // namespace
}  // namespace ringtrain::testing
