// Evaluation at several context lengths: which tokens are scored, that it is these at every length, on every mesh, and
// what is made of their sums.
#include <algorithm>
#include <cmath>
#include <set>

#include "data/loader.h"
#include "framework/random.h"
#include "kernels/elementwise.h"
#include "layers/model_parameters.h"
#include "parallel/launch/launcher.h"
#include "tests/train/train_fixture.h"
#include "train/engine/rank_state.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/evaluation/evaluation_statistics.h"
#include "train/evaluation/evaluator.h"

namespace ringtrain::testing {
namespace {

class EvaluationTest : public TrainTest {
 protected:
  std::unique_ptr<TokenFile> tokens(const TextPlan& plan) {
    return TokenFile::open(write_tokens(fmt::format("text{}.h5", files_++), plan));
  }
  /// Evaluates a model whose weights `set` makes, on a mesh.
  std::vector<LengthResult> evaluate(const Config& config, const TokenFile& file, const EvaluationRequest& request,
                                     const std::function<void(RankState&)>& set) {
    const RankPurpose purpose{.training = false, .evaluation_lengths = request.context_lengths};
    const ParameterTable table = make_parameter_table(config.model);
    const EvaluationTargets targets = choose_targets(file, request);
    std::vector<std::vector<LengthResult>> results(config.mesh.data * config.mesh.sequence);
    launch_threads({static_cast<int>(results.size()), 60}, [&](Communicator& world) {
      ThreadPool pool(1);
      RankState state(config, table, purpose, world.rank(), Device::cpu(), pool, &world);
      set(state);
      results[world.rank()] = evaluate_targets(state, file, request, targets, nullptr, nullptr).value();
    });
    for (const auto& other : results) {  // every rank knows the same
      EXPECT_EQ(other.size(), results[0].size());
      for (std::size_t i = 0; i < other.size(); ++i) EXPECT_EQ(other[i].nll.value, results[0][i].nll.value);
    }
    return results[0];
  }
  static void initialise(RankState& state) { state.model.initialise(3); }

 private:
  int files_ = 0;
};

const TextPlan long_text{.vocab_size = 23,
                         .documents = 40,
                         .shortest = 20,
                         .longest = 260,
                         .validation_documents = 30,
                         .weights = false,
                         .seed = 4};

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
    EXPECT_EQ(targets.part, ScoredPart::validation);
    // As many documents as there can be.
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

TEST_F(EvaluationTest, TargetsDependOnTheFileAndTheRequestAlone) {
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
  EXPECT_EQ(choose_targets(*tokens(plan), {{16, 100}, 8, 20}).part, ScoredPart::whole);
}

TEST_F(EvaluationTest, WhatCannotBeScoredIsRefused) {
  const auto file = tokens(long_text);
  const std::string sentence = error_of(ExitCode::data, [&] { choose_targets(*file, {{16, 4000}, 8, 20}); });
  EXPECT_NE(sentence.find("4000"), std::string::npos);
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

/// Sets the weights at random, with the two projections that add to the residual stream at zero: a model that sees its
/// own token and nothing else.
void forget_context(RankState& state) {
  state.model.initialise(3);
  const auto& all = state.parameters.table().all();
  for (std::size_t id = 0; id < all.size(); ++id) {
    if (all[id].name.ends_with("o_proj.weight") || all[id].name.ends_with("down_proj.weight")) {
      fill(state.stream, state.parameters.weight(static_cast<int>(id)), 0);
    }
  }
}

// The nll of a context-free model is a table of token pairs, so that this test adds up the targets by itself: any other
// token scored, or one scored twice, would show.
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
  const auto file = tokens(long_text);
  const EvaluationRequest request{{17, 64, 100}, 8, 29};
  const std::vector<std::string> wide{"model.initializer_range=0.3"};
  const auto reference = evaluate(tiny("none", wide), *file, request, initialise);
  EXPECT_GT(std::abs(reference[1].delta.value), 1e-3) << "context should matter to this model";
  for (const auto& [data, sequence, layout] : {std::tuple{1, 2, "zigzag"},
                                               {2, 1, "zigzag"},
                                               {2, 3, "striped"},
                                               {3, 2, "contiguous"},
                                               {8, 1, "zigzag"},
                                               {1, 8, "zigzag"}}) {
    auto settings = wide;
    settings.insert(settings.end(), {fmt::format("mesh.data={}", data), fmt::format("mesh.sequence={}", sequence),
                                     fmt::format("mesh.layout={}", layout), "training.global_batch_size=24"});
    const auto results = evaluate(tiny("none", settings), *file, request, initialise);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(results[i].nll.value, reference[i].nll.value, 1e-12 * reference[i].nll.value);
      EXPECT_NEAR(results[i].nll.ci95.low, reference[i].nll.ci95.low, 1e-11);
      EXPECT_NEAR(results[i].delta.value, reference[i].delta.value, 1e-11);
    }
  }
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

  EvaluationOptions options;
  options.checkpoint = at("run");
  options.data = data;
  options.request = {{16, 32, 100}, 8, 25};
  options.mesh.data = 1;
  options.mesh.sequence = 3;
  Launcher launcher;
  const EvaluationSummary summary = evaluate_checkpoint(options, launcher);
  EXPECT_EQ(summary.target_hash, lines[1].at("target_hash").get<std::string>());
  EXPECT_EQ(summary.documents, lines[1].at("documents"));
  EXPECT_EQ(summary.trained_length, 37);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& result = lines[1].at("results").at(i);
    EXPECT_NEAR(summary.results[i].nll.value, result.at("nll").get<double>(), 1e-12 * summary.results[i].nll.value);
    EXPECT_EQ(result.at("beyond_trained_length").get<bool>(), i == 2);
  }
  const std::string table = evaluation_table(summary);
  EXPECT_NE(table.find("100*"), std::string::npos);
  EXPECT_EQ(table.find("would mean nothing"),
            summary.documents < 20 ? table.rfind("would mean nothing") : std::string::npos);
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
  EvaluationOptions options;
  options.checkpoint = at("run");
  options.data = data;
  options.request = {{16, 64}, 8, 25};
  Launcher launcher;
  EXPECT_EQ(evaluate_checkpoint(options, launcher).results.size(), 2u);
  options.request = {{16, 65}, 8, 25};
  EXPECT_NE(error_of(ExitCode::usage, [&] { evaluate_checkpoint(options, launcher); }).find("64 positions"),
            std::string::npos);
}

// ---- By position ---------------------------------------------------------------------------------------------------

// The witness adds up each window's predictions by itself, in bounds that it spells out.
TEST_F(EvaluationTest, ByPositionEachPredictionOfAWindowIsInItsBucket) {
  TextPlan plan = long_text;
  plan.weights = true;
  const auto file = tokens(plan);
  const Config config = tiny("none", {"model.initializer_range=0.3"});
  EvaluationRequest request{{24, 100}, 8, 30};
  request.by_position = true;
  const auto results = evaluate(config, *file, request, initialise);
  const std::vector<std::pair<std::int64_t, std::int64_t>> bounds{{1, 1},  {2, 2},   {3, 4},   {5, 8},
                                                                  {9, 16}, {17, 32}, {33, 64}, {65, 100}};
  std::map<std::pair<std::int64_t, std::int64_t>, double> nll, longest, weight;  // by length and first position
  const auto first_of = [&](std::int64_t position) {
    return std::ranges::find_if(bounds, [&](const auto& one) { return position <= one.second; })->first;
  };
  const ParameterTable table = make_parameter_table(config.model);
  launch_threads({1, 60}, [&](Communicator& world) {
    ThreadPool pool(1);
    RankState state(config, table, {.training = false, .evaluation_lengths = {100}}, 0, Device::cpu(), pool, &world);
    initialise(state);
    for (const TargetBlock& block : choose_targets(*file, request).blocks) {
      for (const std::int64_t length : request.context_lengths) {
        const std::int64_t begin = block.end - length;
        load_spans(state.batch, *file, {&begin, 1}, length, length, state.shard);
        const TensorView values = state.evaluation_nll.view().prefix({1, state.batch.T});
        state.model.evaluate(state.batch, values);
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
  // The last targets are scored as they are without it.
  request.by_position = false;
  const auto plain = evaluate(config, *file, request, initialise);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(plain[i].nll.value, results[i].nll.value);
    EXPECT_EQ(plain[i].targets, results[i].targets);
    EXPECT_TRUE(plain[i].by_position.empty());
  }
}

TEST_F(EvaluationTest, ByPositionDoesNotDependOnTheMesh) {
  const auto file = tokens(long_text);
  EvaluationRequest request{{17, 100}, 8, 29};
  request.by_position = true;
  const std::vector<std::string> wide{"model.initializer_range=0.3"};
  const auto reference = evaluate(tiny("none", wide), *file, request, initialise);
  for (const auto& [data, sequence] : {std::pair{1, 4}, {2, 2}}) {
    auto settings = wide;
    settings.insert(settings.end(), {fmt::format("mesh.data={}", data), fmt::format("mesh.sequence={}", sequence),
                                     "training.global_batch_size=24"});
    const auto results = evaluate(tiny("none", settings), *file, request, initialise);
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(results[i].by_position.size(), reference[i].by_position.size());
      for (std::size_t k = 0; k < results[i].by_position.size(); ++k) {
        const PositionResult &one = results[i].by_position[k], &other = reference[i].by_position[k];
        EXPECT_EQ(one.targets, other.targets);
        EXPECT_NEAR(one.nll.value, other.nll.value, 1e-9);
        EXPECT_NEAR(one.nll.ci95.low, other.nll.ci95.low, 1e-9);
        EXPECT_NEAR(one.cut.value, other.cut.value, 1e-9);
        EXPECT_NEAR(one.cut.ci95.high, other.cut.ci95.high, 1e-9);
      }
    }
  }
}

// ---- Strided -------------------------------------------------------------------------------------------------------

TEST_F(EvaluationTest, AStrideScoresEveryTokenOfWholeDocumentsOnce) {
  const auto file = tokens(long_text);
  const auto offsets = file->document_offsets();
  for (const auto& [length, stride] : {std::pair{50, 20}, {50, 49}, {50, 1}, {2, 1}, {1000, 7}}) {
    const EvaluationRequest request{{length}, 8, 20, stride};
    check_request(request, "flags");
    const EvaluationTargets targets = choose_targets(*file, request);
    EXPECT_EQ(targets.documents, 30);  // the validation part
    std::map<std::int64_t, int> scored;
    for (const TargetSpan& span : spans_of(*file, request, targets, length)) {
      const TargetBlock& block = targets.blocks[span.block];
      const std::int64_t begin = offsets[block.document];
      EXPECT_EQ(block.end + 1, offsets[static_cast<std::size_t>(block.document) + 1]);
      EXPECT_EQ((span.begin - begin) % stride, 0);
      EXPECT_LT(span.length, length);  // the window's last token is a target alone
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

// Brute force: a model of its own for every single token. It reads the window of that token, cut off before it.
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
  const ParameterTable table = make_parameter_table(config.model);
  launch_threads({1, 60}, [&](Communicator& world) {
    ThreadPool pool(1);
    RankState state(config, table, {.training = false, .evaluation_lengths = {length}}, 0, Device::cpu(), pool, &world);
    initialise(state);
    for (std::size_t d = 2; d < 5; ++d) {
      for (std::int64_t token = 1; token < offsets[d + 1] - offsets[d]; ++token) {
        // Window k holds tokens [k * stride, k * stride + length); the first that has this one scores it.
        const std::int64_t window = token < length ? 0 : (token - length) / stride + 1;
        const std::int64_t begin = offsets[d] + window * stride;
        load_spans(state.batch, *file, {&begin, 1}, offsets[d] + token - begin, 1, state.shard);
        const TensorView values = state.evaluation_nll.view().prefix({1, state.batch.T});
        state.model.evaluate(state.batch, values);
        float w = 0;
        file->read_weights(offsets[d] + token, {&w, 1});
        nll += static_cast<double>(w) * values.as<double>()[state.batch.T - 1];
        weight += static_cast<double>(w);
        scored += w > 0;
      }
    }
  });
  const auto result = evaluate(config, *file, {{length}, 8, 20, stride}, initialise).at(0);
  EXPECT_EQ(result.targets, scored);
  EXPECT_NEAR(result.nll.value, nll / weight, 1e-12 * nll / weight);
  // The stride matters, and so does the length.
  EXPECT_GT(std::abs(evaluate(config, *file, {{length}, 8, 20, 1}, initialise)[0].nll.value - result.nll.value), 1e-6);
}

TEST_F(EvaluationTest, AStrideDoesNotDependOnTheMesh) {
  const auto file = tokens(long_text);
  const EvaluationRequest request{{17, 64}, 8, 20, 9};
  const std::vector<std::string> wide{"model.initializer_range=0.3"};
  const auto reference = evaluate(tiny("none", wide), *file, request, initialise);
  for (const auto& [data, sequence, layout] :
       {std::tuple{1, 2, "zigzag"}, {2, 3, "striped"}, {3, 2, "contiguous"}, {1, 8, "zigzag"}}) {
    auto settings = wide;
    settings.insert(settings.end(), {fmt::format("mesh.data={}", data), fmt::format("mesh.sequence={}", sequence),
                                     fmt::format("mesh.layout={}", layout), "training.global_batch_size=24"});
    const auto results = evaluate(tiny("none", settings), *file, request, initialise);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(results[i].targets, reference[i].targets);
      EXPECT_NEAR(results[i].nll.value, reference[i].nll.value, 1e-12 * reference[i].nll.value);
      EXPECT_NEAR(results[i].delta.value, reference[i].delta.value, 1e-11);
    }
  }
}

TEST_F(EvaluationTest, WindowsThatDoNotOverlapLeaveTheirFirstTokensOut) {
  const auto file = tokens(long_text);
  const auto offsets = file->document_offsets();
  const EvaluationRequest request{{50}, 8, 20, 50};
  check_request(request, "flags");
  const EvaluationTargets targets = choose_targets(*file, request);
  std::map<std::int64_t, int> scored;
  for (const TargetSpan& span : spans_of(*file, request, targets, 50)) {
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
  for (const TargetSpan& span : spans_of(*file, request, targets, most)) {
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
  EXPECT_NE(error_of(ExitCode::data, [&] { choose_targets(*file, request); }).find("from 2 to 2 tokens"),
            std::string::npos);
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
  EvaluationOptions options;
  options.checkpoint = at("run");
  options.data = data;
  options.request = {{64}, 8, 4};
  Launcher launcher;
  const double plain = evaluate_checkpoint(options, launcher).results.at(0).nll.value;
  options.settings = {"model.rope_theta=100"};
  EXPECT_NE(evaluate_checkpoint(options, launcher).results.at(0).nll.value, plain);
  options.settings = {"model.hidden_size=8"};
  EXPECT_NE(error_of(ExitCode::usage, [&] { evaluate_checkpoint(options, launcher); }).find("--set model.hidden_size"),
            std::string::npos);
}

TEST_F(EvaluationTest, AStridesReportSaysSo) {
  const std::string data = write_tokens("corpus.h5", long_text);
  run(tiny(data, {"training.steps=1"}), "run");
  EvaluationOptions options;
  options.checkpoint = at("run");
  options.data = data;
  options.request = {{16, 64}, EvaluationOptions::of_the_checkpoint, EvaluationOptions::of_the_checkpoint, 8};
  Launcher launcher;
  const EvaluationSummary summary = evaluate_checkpoint(options, launcher);
  const auto json = evaluation_json(summary);
  EXPECT_EQ(json.at("stride"), 8);
  EXPECT_EQ(json.at("documents"), 30);
  EXPECT_FALSE(json.contains("target_blocks"));
  EXPECT_NE(evaluation_table(summary).find("move by 8 tokens"), std::string::npos);
  options.request.stride = 16;
  EXPECT_NE(error_of(ExitCode::usage, [&] { evaluate_checkpoint(options, launcher); }).find("--stride"),
            std::string::npos);
}

EvaluationSummary summary_with(std::int64_t documents, double bits_per_byte) {
  EvaluationSummary summary;
  summary.documents = documents;
  summary.target_blocks = documents;
  summary.trained_length = 64;
  summary.data = "a.h5";
  summary.part = {ScoredPart::validation, false};
  summary.results.push_back({16, 8, {2.5, {2.25, 2.75}}, std::exp(2.5), bits_per_byte, {}});
  return summary;
}

TEST(EvaluationTable, HasNoIntervalsOverFewDocuments) {
  const std::string one = evaluation_table(summary_with(1, 3.5)), few = evaluation_table(summary_with(19, 3.5)),
                    enough = evaluation_table(summary_with(20, 3.5));
  EXPECT_NE(one.find("With 1 document, fewer than 20, a confidence interval over documents would mean nothing."),
            std::string::npos)
      << one;
  EXPECT_NE(one.find("in 1 block of 1 document, "), std::string::npos) << one;
  EXPECT_NE(few.find("With 19 documents, fewer than 20"), std::string::npos) << few;
  for (const std::string& table : {one, few}) {
    EXPECT_EQ(table.find("2.2500"), std::string::npos) << table;
    EXPECT_EQ(table.find("Student"), std::string::npos) << table;
  }
  EXPECT_NE(enough.find("[2.2500, 2.7500]"), std::string::npos) << enough;
  EXPECT_EQ(enough.find("would mean nothing"), std::string::npos) << enough;
}

TEST(EvaluationTable, HasBitsPerByteOnlyWhereBytesAreKnown) {
  const std::string known = evaluation_table(summary_with(20, 3.5)), unknown = evaluation_table(summary_with(20, NAN));
  EXPECT_NE(known.find(" 3.5000 "), std::string::npos) << known;
  EXPECT_EQ(unknown.find("nan"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("does not say how many bytes of text it holds, so bits/byte is not known"), std::string::npos)
      << unknown;
  const auto written = nlohmann::json::parse(evaluation_json(summary_with(20, NAN)).dump());
  EXPECT_TRUE(written.at("results")[0].at("bits_per_byte").is_null());
}

TEST(Statistics, StudentsQuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(student_t(0.95, 1), 12.7062047, 1e-6);
  EXPECT_NEAR(student_t(0.95, 2), 4.30265273, 1e-7);
  EXPECT_NEAR(student_t(0.95, 19), 2.09302405, 1e-7);
  EXPECT_NEAR(student_t(0.95, 100), 1.98397152, 1e-7);
  EXPECT_NEAR(student_t(0.99, 5), 4.03214298, 1e-7);
  EXPECT_NEAR(student_t(0.95, 1e6), 1.95996645, 1e-5);
}

TEST(Statistics, EqualDocumentsGiveTheIntervalOfAMean) {
  // Four documents of weight 2: the ratio estimator is the mean of their means, with the usual t interval.
  const std::vector<std::int64_t> lengths{10, 20}, documents{4, 9, 4, 2, 7, 9, 2, 7};
  const std::vector<double> means{1.0, 3.0, 1.5, 2.5};  // of documents 4, 9, 2, 7
  const auto mean_of = [&](std::int64_t d) { return means[d == 4 ? 0 : d == 9 ? 1 : d == 2 ? 2 : 3]; };
  std::vector<std::vector<BlockSums>> sums(2);
  for (const std::int64_t d : documents) {
    sums[0].push_back({mean_of(d), 1, 0.5, 1});
    sums[1].push_back({mean_of(d) - 0.25, 1, 0.5, 1});
  }
  const auto results = summarise(lengths, sums, documents);
  EXPECT_DOUBLE_EQ(results[0].nll.value, 2.0);
  const double stddev = std::sqrt((1.0 + 1.0 + 0.25 + 0.25) / 3), half = student_t(0.95, 3) * stddev / 2;
  EXPECT_NEAR(results[0].nll.ci95.low, 2.0 - half, 1e-12);
  EXPECT_NEAR(results[0].nll.ci95.high, 2.0 + half, 1e-12);
  EXPECT_DOUBLE_EQ(results[0].perplexity, std::exp(2.0));
  EXPECT_NEAR(results[0].bits_per_byte, 2.0 * 2 / std::log(2.0), 1e-12);  // two targets a byte
  EXPECT_EQ(results[0].targets, 8);
  EXPECT_EQ(results[0].delta.value, 0);
  // Paired: every document improves alike, so the difference is certain though the means are not.
  EXPECT_NEAR(results[1].delta.value, -0.25, 1e-15);
  EXPECT_NEAR(results[1].delta.ci95.high - results[1].delta.ci95.low, 0, 1e-12);
  EXPECT_GT(results[1].nll.ci95.high - results[1].nll.ci95.low, 1);
}

TEST(Statistics, TheIntervalCoversTheTruthNinetyFiveTimesInAHundred) {
  // Documents of very different weight whose own mean scatters: seeded draws, 2,000 times.
  int covered = 0;
  constexpr int times = 2000, count = 30;
  std::uint64_t draws = 0;
  for (int time = 0; time < times; ++time) {
    std::vector<BlockSums> row;
    std::vector<std::int64_t> documents;
    for (int d = 0; d < count; ++d) {
      const double weight = 1 + static_cast<double>(random_below(8, Purpose::test, draws++, 4));
      const double mean = 3 + random_normal(8, Purpose::test, draws++);
      row.push_back({weight * mean, weight, weight, weight});
      documents.push_back(d);
    }
    const std::vector<std::int64_t> lengths{10};
    const Estimate estimate = summarise(lengths, {row}, documents)[0].nll;
    covered += estimate.ci95.low <= 3 && 3 <= estimate.ci95.high;
  }
  EXPECT_NEAR(static_cast<double>(covered) / times, 0.945, 0.015);  // slightly liberal, as ratio estimators are
}

TEST(Statistics, OneDocumentHasNoInterval) {
  const std::vector<std::int64_t> lengths{10}, documents{5, 5};
  const auto results = summarise(lengths, {{{1, 1, 1, 1}, {2, 1, 1, 1}}}, documents);
  EXPECT_DOUBLE_EQ(results[0].nll.value, 1.5);
  EXPECT_TRUE(std::isnan(results[0].nll.ci95.low));
}

}  // namespace
}  // namespace ringtrain::testing
