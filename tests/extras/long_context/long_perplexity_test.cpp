// LongPPL: the rules of the package longppl, a reference that runs each window separately, saved sets, meshes.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "data/loader.h"
#include "extras/long_context/long_perplexity.h"
#include "framework/storage/files.h"
#include "tests/train/evaluation/evaluation_fixture.h"
#include "train/evaluation/evaluation_report.h"

namespace ringtrain::testing {
namespace {

TEST(KeyTokens, HaveLongpplsDefaults) {
  const KeyTokenOptions options;
  EXPECT_EQ(options.trunc_len, 4096);
  EXPECT_EQ(options.sliding_window, 1024);
  EXPECT_EQ(options.alpha, 2);
  EXPECT_EQ(options.beta, -2);
}

TEST(KeyTokens, BothBoundsAreStrict) {
  const KeyTokenOptions options;
  EXPECT_TRUE(is_key(3.5, 1, options));
  EXPECT_FALSE(is_key(3, 1, options));  // falls by exactly 2
  EXPECT_FALSE(is_key(9, 2, options));  // log probability is exactly -2
  EXPECT_TRUE(is_key(9, 1.999, options));
}

// As range(0, max_len - trunc_len, sliding_window) in Python, with the last window cut at the text's end.
TEST(KeyTokens, ShortWindowsScoreEachTokenFromTruncLenOnOnce) {
  const KeyTokenOptions options{.trunc_len = 10, .sliding_window = 4};
  EXPECT_EQ(short_windows(10, options), std::vector<ShortWindow>{});
  EXPECT_EQ(short_windows(11, options), (std::vector<ShortWindow>{{0, 11, 1}}));
  EXPECT_EQ(short_windows(18, options), (std::vector<ShortWindow>{{0, 14, 4}, {4, 14, 4}}));
  EXPECT_EQ(short_windows(19, options), (std::vector<ShortWindow>{{0, 14, 4}, {4, 14, 4}, {8, 11, 1}}));
}

// The expected lists are those of longppl 0.3.0 (its merge_intervals and cal_overlap).
TEST(KeyTokens, IntervalsMergeAndSelectAsLongpplsDo) {
  const std::vector<TextInterval> key{{3, 5}, {5, 9}, {12, 13}, {13, 14}, {20, 22}};
  const auto joined = merged(key);
  EXPECT_EQ(joined, (std::vector<TextInterval>{{3, 9}, {12, 14}, {20, 22}}));
  // Another tokenizer's tokens: [2, 4) and [8, 12) extend outside; [12, 14), [20, 21), and [21, 22) are within.
  const std::vector<TextInterval> tokens{{0, 2},   {2, 4},   {4, 6},   {6, 8},  {8, 12},
                                         {12, 14}, {14, 20}, {20, 21}, {21, 22}};
  EXPECT_EQ(tokens_within(tokens, joined), (std::vector<std::int64_t>{2, 3, 5, 7, 8}));
  EXPECT_EQ(tokens_within(tokens, {}), std::vector<std::int64_t>{});
  // Two tokens share a character: if one is a key token, both are.
  const std::vector<TextInterval> shared{{0, 1}, {1, 2}, {1, 2}, {2, 3}}, one{{1, 2}};
  EXPECT_EQ(tokens_within(shared, one), (std::vector<std::int64_t>{1, 2}));
}

TEST(KeyTokens, BytesOfACharacterShareIt) {
  const auto bytes = load_tokenizer("bytes");
  const std::string text = "a\u00e9\u20acb";
  EXPECT_EQ(character_intervals(*bytes, bytes->encode(text)),
            (std::vector<TextInterval>{{0, 1}, {1, 2}, {1, 2}, {2, 3}, {2, 3}, {2, 3}, {3, 4}}));
  EXPECT_EQ(character_intervals(*bytes, std::vector<std::int32_t>{256, 97}),  // a special token has no text
            (std::vector<TextInterval>{{0, 0}, {0, 1}}));
}

class LongPplTest : public TrainTest {
 protected:
  /// Documents of 60 to 199 tokens, half of them for validation. Returns the file's path.
  std::string data() {
    if (data_.empty())
      data_ = write_tokens(
          "text.h5", {.documents = 16, .shortest = 60, .longest = 200, .validation_documents = 8, .weights = weights_});
    return data_;
  }
  /// Trains a model whose context matters a little.
  std::string model(const std::string& name, int seed) {
    run(tiny(data(), {"training.steps=1", "model.initializer_range=0.5", fmt::format("training.seed={}", seed)}), name);
    return at(name);
  }
  EvaluationOptions options(const std::string& checkpoint) {
    EvaluationOptions options;
    options.checkpoint = checkpoint;
    options.data = data();
    options.request = {{16, 150}, 8, 20};
    return options;
  }
  struct Found {
    EvaluationSummary summary;
    nlohmann::json longppl;
    KeySet set;
  };
  Found evaluate(EvaluationOptions options, const LongPplRequest& request = {contrast}) const {
    options.metrics = {long_perplexity(request)};
    EvaluationSummary summary = evaluate_on_threads(options);
    write_file(at("found.json"), summary.metrics.at(0).second.file_text, ExitCode::usage);
    nlohmann::json longppl = evaluation_json(summary).at("longppl");
    return {std::move(summary), std::move(longppl), read_key_set(at("found.json"))};
  }
  void expect_witness();
  static constexpr KeyTokenOptions contrast{.trunc_len = 30, .sliding_window = 13, .alpha = 0.15, .beta = -2.9};
  bool weights_ = false;

 private:
  std::string data_;
};

// The reference reads every token's short window in full, and selects key tokens as the paper describes.
void LongPplTest::expect_witness() {
  const std::string checkpoint = model("run", 1);
  const auto [summary, result, set] = evaluate(options(checkpoint));
  const auto file = TokenFile::open(data());
  double key_nll = 0, key_weight = 0, nll = 0, all_weight = 0;
  std::int64_t keys = 0, tokens = 0, scored = 0;
  std::set<std::int64_t> documents;
  for (const TargetBlock& block : summary.targets.blocks) documents.insert(block.document);
  on_model(checkpoint, 150, [&](RankState& state) {
    const auto nll_of = [&](std::int64_t begin, std::int64_t target) {  // of a token, read from `begin`
      load_spans(state.batch, *file, {&begin, 1}, target - begin, 1, state.shard);
      const TensorView values = state.evaluation_nll.view().prefix({1, state.batch.T});
      state.model->evaluate(state.batch, values);
      return values.as<double>()[target - begin - 1];
    };
    for (const std::int64_t document : documents) {
      const std::int64_t begin = file->document_offsets()[document], end = file->document_offsets()[document + 1] - 1;
      const std::int64_t last = std::min(end, begin + 150);
      tokens += last - begin;
      for (std::int64_t target = begin + 1; target < last; ++target, ++scored) {
        float weight = 1;
        if (weights_) file->read_weights(target, {&weight, 1});
        const double of_long = nll_of(begin, target), w = static_cast<double>(weight);
        nll += w * of_long;
        all_weight += w;
        if (target - begin < 30 || w == 0) continue;
        const std::int64_t window = (target - begin - 30) / 13 * 13;
        const double of_short = nll_of(begin + window, target);
        if (of_short - of_long <= 0.15 || of_long >= 2.9) continue;
        ++keys;
        key_nll += w * of_long;
        key_weight += w;
      }
    }
  });
  ASSERT_GT(keys, 10);
  ASSERT_LT(keys, scored / 2);
  EXPECT_EQ(result.at("n_key_token"), keys);
  EXPECT_EQ(result.at("n_token"), tokens);
  EXPECT_NEAR(result.at("key_nll"), key_nll / key_weight, 1e-12);
  EXPECT_NEAR(result.at("longppl"), std::exp(key_nll / key_weight), 1e-11);
  EXPECT_NEAR(result.at("nll"), nll / all_weight, 1e-12);
  EXPECT_EQ(result.at("documents").size(), documents.size());
  EXPECT_NE(evaluation_table(summary).find("found by this model itself: " + set.evaluator), std::string::npos);
}

TEST_F(LongPplTest, EqualsAWitnessThatReadsEachWindow) {
  expect_witness();
}

TEST_F(LongPplTest, WeightsOfAFileCount) {
  weights_ = true;
  expect_witness();
}

TEST_F(LongPplTest, DoesNotDependOnTheMesh) {
  const std::string checkpoint = model("run", 1);
  const Found reference = evaluate(options(checkpoint));
  ASSERT_GT(reference.longppl.at("n_key_token"), 10);
  for (const auto& [data_ranks, sequence] : {std::pair{1, 4}, {2, 2}, {3, 1}}) {
    EvaluationOptions other = options(checkpoint);
    other.mesh.data = data_ranks;
    other.mesh.sequence = sequence;
    other.shard_weights = data_ranks == 2;
    const Found found = evaluate(other);
    EXPECT_EQ(found.set.texts, reference.set.texts);
    EXPECT_NEAR(found.longppl.at("key_nll"), reference.longppl.at("key_nll"), 1e-11);
    EXPECT_NEAR(found.longppl.at("nll"), reference.longppl.at("nll"), 1e-11);
  }
}

TEST_F(LongPplTest, CheckpointsCompareOnOneSavedSet) {
  const std::string one = model("one", 1), two = model("two", 2);
  const Found own = evaluate(options(one));
  const std::string path = at("keys.json");
  write_file(path, key_set_text(own.set), ExitCode::usage);
  const KeySet read = read_key_set(path);
  EXPECT_EQ(read.texts, own.set.texts);
  EXPECT_EQ(read.evaluator, own.set.evaluator);
  EXPECT_EQ(read.options, contrast);

  const LongPplRequest saved{.options = {}, .key_tokens = path};
  const nlohmann::json same = evaluate(options(one), saved).longppl;
  EXPECT_EQ(same.at("key_nll"), own.longppl.at("key_nll"));
  EXPECT_EQ(same.at("own_contrast"), false);
  EvaluationOptions other = options(two);
  EXPECT_NE(evaluate(other).set.texts, own.set.texts);
  const Found found = evaluate(other, saved);
  EXPECT_EQ(found.longppl.at("n_key_token"), own.longppl.at("n_key_token"));
  EXPECT_EQ(found.set.texts, own.set.texts);
  EXPECT_NE(evaluation_table(found.summary).find("found by another model: " + own.set.evaluator), std::string::npos);
  other.request.part = ScoredPart::whole;  // other documents
  expect_error(ExitCode::data, "not document", [&] { evaluate(other, saved); });
}

TEST_F(LongPplTest, WhatCannotBeIsRefused) {
  const EvaluationOptions asked = options(model("run", 1));
  expect_error(ExitCode::usage, "--trunc-len 150", [&] { evaluate(asked, {{.trunc_len = 150}}); });
  const std::string path = at("keys.json");
  const auto refused = [&](const std::string& text) {
    write_file(path, text, ExitCode::usage);
    return error_of(ExitCode::data, [&] { read_key_set(path); });
  };
  const std::string head = std::string(key_set_head) +
                           R"("evaluator":"e","unit":"tokens","trunc_len":4,"sliding_window":2,"alpha":2,"beta":-2,)";
  EXPECT_NE(refused("{}").find("keys.json"), std::string::npos);
  EXPECT_NE(refused(head + R"("texts":[{"hash":"h","length":9,"key":[1,3,2]}]})").find("begins and ends"),
            std::string::npos);
  EXPECT_NE(refused(head + R"("texts":[{"hash":"h","length":9,"key":[1,30]}]})").find("ascend"), std::string::npos);
  EXPECT_NE(refused(head + R"("texts":[{"hash":"h","length":9,"key":[5,6,1,2]}]})").find("ascend"), std::string::npos);
}

}  // namespace
}  // namespace ringtrain::testing
