// Compares generation with forward passes without a cache: the greedy token must be the likeliest after every prefix,
// on any ring and for any architecture; drawn tokens and the end of a text; and refusals of the program.
#include <algorithm>
#include <set>
#include <sstream>

#include "data/tokenizer/tokenizer.h"
#include "parallel/launch/launcher.h"
#include "tests/support/paths.h"
#include "tests/train/generation/generation_fixture.h"

namespace ringtrain::testing {
namespace {

/// Returns all models of these tests: the common ones, and more.
std::vector<std::pair<const char*, std::vector<std::string>>> all_models() {
  auto models = common_models;
  models.insert(
      models.end(),
      {{"untied, yarn",
        {"model.tie_word_embeddings=false", "model.rope_scaling.type=yarn", "model.rope_scaling.factor=4",
         "model.rope_scaling.original_max_position_embeddings=64"}},
       {"adapters", {"lora.rank=3", "lora.targets=[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]"}},
       {"qwen2", {"model.architecture=qwen2"}}});
  return models;
}

TEST_F(GenerationTest, GreedyTokensAreTheLikeliestAfterEveryPrefix) {
  for (const auto& [name, settings] : all_models()) {
    SCOPED_TRACE(name);
    const Config config = model(settings);
    const Tokens prompt = random_prompt(20, 1);
    const Tokens tokens = generated(config, {.prompt = prompt, .new_tokens = 200});
    ASSERT_EQ(tokens.size(), 200u);
    EXPECT_GT(std::set<std::int32_t>(tokens.begin(), tokens.end()).size(), 1u) << "a text of one token shows little";
    expect_greedy(config, prompt, tokens, 1e-9);
  }
}

TEST_F(GenerationTest, RingsGiveTheTokensOfOneRank) {
  for (const auto& [name, settings] : all_models()) {
    SCOPED_TRACE(name);
    const Config config = model(settings);
    for (const std::int64_t length : {1, 2, 5, 31}) {
      const GenerationRequest request{.prompt = random_prompt(length, 2), .new_tokens = 60};
      const Tokens one = generated(config, request);
      for (const std::int64_t ranks : {2, 3, 5}) {
        for (const Layout layout : all_layouts) {
          EXPECT_EQ(generated(on_ring(config, ranks, layout), request), one)
              << ranks << " ranks, " << name_of(layout) << ", a prompt of " << length;
        }
      }
    }
  }
}

// In bfloat16, the error of logits is some units of 2^-8 of the activations before them, and logits themselves are
// rounded to it.
TEST_F(GenerationTest, NarrowTypesAreGreedyToTheirRounding) {
  for (const auto& [dtype, slack] : {std::pair{DType::float32, 2e-5}, {DType::bfloat16, 0.1}}) {
    SCOPED_TRACE(name_of(dtype));
    Config config = model({});
    config.training.dtype = dtype;
    const Tokens prompt = random_prompt(40, 3);
    for (const std::int64_t ranks : {1, 2, 3}) {
      expect_greedy(config, prompt, generated(on_ring(config, ranks), {.prompt = prompt, .new_tokens = 150}), slack);
    }
  }
}

TEST_F(GenerationTest, ASeedGivesTheSameTextOnEveryRing) {
  const Config config = model({});
  GenerationRequest request{.prompt = random_prompt(9, 4), .new_tokens = 80};
  request.sampling = {.temperature = 1.5, .top_k = 12, .top_p = 0.95, .repetition_penalty = 1.1, .seed = 5};
  const Tokens one = generated(config, request);
  EXPECT_EQ(generated(on_ring(config, 2), request), one);
  EXPECT_EQ(generated(on_ring(config, 3, Layout::striped), request), one);
  request.sampling.seed = 6;
  EXPECT_NE(generated(config, request), one);
}

TEST_F(GenerationTest, EndsAtAnEndTokenOrWhenTheObserverSaysSo) {
  const Config config = model({});
  GenerationRequest request{.prompt = random_prompt(9, 4), .new_tokens = 40};
  request.sampling = {.temperature = 1, .seed = 5};
  const Tokens all = generated(config, request);
  const auto end = std::ranges::find_if(all, [&](std::int32_t token) { return token != all.front(); });
  ASSERT_NE(end, all.end());
  request.end_tokens = {*end};
  for (const std::int64_t ranks : {1, 3}) {
    EXPECT_EQ(generated(on_ring(config, ranks), request), Tokens(all.begin(), end)) << "an end is no part of the text";
  }
  request.end_tokens.clear();
  for (const std::int64_t ranks : {1, 3}) {
    int left = 7;
    EXPECT_EQ(generated(on_ring(config, ranks), request, [&](std::int32_t) { return --left > 0; }),
              Tokens(all.begin(), all.begin() + 7));
  }
}

TEST_F(GenerationTest, ACacheHoldsOnlyItsRanksTokens) {
  const Config config = model({});
  const RankPurpose purpose{.training = false, .prompt_tokens = 201, .new_tokens = 80};
  const ParameterTable table = make_parameter_table(config.model);
  const auto cache_bytes = [&](std::int64_t ranks) {
    std::size_t most = 0;
    for (const RankPlan& plan : plan_ranks(on_ring(config, ranks), table, purpose)) {
      std::size_t bytes = 0;
      for (const PlannedTensor& tensor : plan.tensors) {
        if (tensor.name.find("key and value cache") != std::string::npos) bytes += tensor.bytes;
      }
      most = std::max(most, bytes);
    }
    return most;
  };
  // Two layers of keys and values of two heads of four doubles: 256 bytes per token.
  EXPECT_EQ(cache_bytes(1), 280u * 256);
  EXPECT_EQ(cache_bytes(4), 70u * 256);
}

// ---- The program, without its command line -------------------------------------------------------------------------

class CheckpointGenerationTest : public GenerationTest {
 protected:
  /// Trains a model of bytes for one step.
  void SetUp() override {
    GenerationTest::SetUp();
    run(tiny(write_tokens("bytes.h5", {.vocab_size = 257}),
             {"training.steps=1", "model.vocab_size=257", "model.initializer_range=0.4"}),
        "run");
    options_.checkpoint = at("run");
    options_.max_new_tokens = 20;
  }
  std::string text(GenerationSummary* summary = nullptr) { return generated_text(options_, summary); }
  std::string refused(ExitCode code = ExitCode::usage) {
    return error_of(code, [&] { text(); });
  }
  GenerationOptions options_;
};

TEST_F(CheckpointGenerationTest, TextAndIdsAreTheSameTokens) {
  options_.raw = true;
  options_.prompt = "ab";
  options_.sampling = {.temperature = 1, .seed = 2};
  GenerationSummary summary;
  const std::string bytes = text(&summary);
  EXPECT_EQ(std::ssize(bytes), summary.ending == Ending::end_of_document ? summary.rates.new_tokens - 1 : 20);
  EXPECT_TRUE(holds(summary_text(summary), "; decode: "));
  std::string ids;
  for (const char byte : bytes) ids += fmt::format("{}{}", ids.empty() ? "" : ",", static_cast<unsigned char>(byte));
  options_.prompt = "";
  options_.tokens = {'a', 'b'};
  EXPECT_EQ(text(), ids);
  options_.sequence_ranks = 2;
  EXPECT_EQ(text(), ids);
}

TEST_F(CheckpointGenerationTest, AStopStringIsNoPartOfTheText) {
  options_.raw = true;
  options_.prompt = "ab";
  const std::string all = text();
  ASSERT_GT(all.size(), 4u);
  options_.stops = {all.substr(2, 2)};
  GenerationSummary summary;
  EXPECT_EQ(text(&summary), all.substr(0, all.find(options_.stops[0])));
  EXPECT_EQ(summary.ending, Ending::stop_string);
}

TEST_F(CheckpointGenerationTest, GoesToTheEndOfTheContextAndSaysSo) {
  options_.prompt = std::string(30, 'x');
  options_.max_new_tokens = 1000;
  options_.sampling = {.repetition_penalty = 2};
  GenerationSummary summary;
  text(&summary);
  EXPECT_EQ(summary.ending, Ending::context);
  EXPECT_EQ(summary.rates.new_tokens, 37 - 30 + 1);
  EXPECT_TRUE(holds(summary_text(summary), "context of 37 tokens is full"));
}

TEST_F(CheckpointGenerationTest, EndsAllRanksWithTheFirstPieceThatCannotBePrinted) {
  options_.tokens = {'a', 'b'};
  for (const std::int64_t ranks : {1, 2}) {
    options_.sequence_ranks = ranks;
    int pieces = 0;
    Launcher launcher;
    expect_error(ExitCode::usage, "no one reads", [&] {
      generate_from_checkpoint(options_, launcher, [&](std::string_view) {
        ++pieces;
        fail(ExitCode::usage, "no one reads");
      });
    });
    EXPECT_EQ(pieces, 1);
  }
}

TEST_F(CheckpointGenerationTest, APromptThatIsReadIsBoundedByTheModel) {
  std::int64_t asked = 0;
  options_.read_prompt = [&](std::int64_t most) {
    asked = most;
    return std::string("ab");
  };
  const std::string read = text();
  EXPECT_EQ(asked, std::int64_t{1} << 20) << "a context of 37 bytes";
  options_.read_prompt = nullptr;
  options_.prompt = "ab";
  EXPECT_EQ(text(), read);
  options_.read_prompt = [](std::int64_t) -> std::string { throw std::logic_error("nobody asks"); };
  options_.sequence_ranks = 38;
  EXPECT_TRUE(holds(refused(), "--mesh 1x38: the text has at most 37 positions"));
}

TEST_F(CheckpointGenerationTest, OneSentenceForEachPromptThatCannotBe) {
  EXPECT_TRUE(holds(refused(), "the prompt is empty"));
  options_.prompt = std::string(38, 'x');
  EXPECT_TRUE(holds(refused(), "the prompt has 38 tokens, but the model's context is 37"));
  options_.prompt = "";
  options_.tokens = {5, 257};
  EXPECT_TRUE(holds(refused(), "257 is not a token of this model, whose vocabulary has the ids 0 to 256"));
  options_.tokens = {-1};
  EXPECT_TRUE(holds(refused(), "-1 is not a token"));
  options_.tokens = {5};
  options_.sampling.top_k = 4;
  EXPECT_TRUE(holds(refused(), "--top-k"));
  options_.sampling = {};
  options_.checkpoint = at("nothing");
  refused(ExitCode::checkpoint);
}

TEST_F(CheckpointGenerationTest, ATokenizerMakesTokensOfThePromptAndTextOfTheNewOnes) {
  run(tiny(write_tokens("pieces.h5", {.vocab_size = 601}),
           {"training.steps=1", "model.vocab_size=601", "model.initializer_range=0.4"}),
      "pieces");
  options_.checkpoint = at("pieces");
  options_.tokenizer = source_folder() + "/tests/tokenizers/tiny/byte_level.json";
  options_.prompt = "the cat sat";
  options_.raw = true;
  options_.sampling = {.temperature = 1, .seed = 7};
  const std::string pieces = text();
  const auto tokenizer = load_tokenizer(options_.tokenizer);
  for (const std::int32_t id : tokenizer->encode(options_.prompt)) options_.tokens.push_back(id);
  ASSERT_LT(options_.tokens.size(), options_.prompt.size()) << "the prompt has tokens of several letters";
  options_.prompt = "";
  std::istringstream ids(text());
  std::string expected;
  for (std::string id; std::getline(ids, id, ',');) {
    if (std::stoi(id) < tokenizer->vocab_size()) expected += tokenizer->token_text(std::stoi(id));
  }
  // Without a tokenizer, another token ends the text, so one text may be longer.
  const std::size_t both = std::min(pieces.size(), expected.size());
  EXPECT_GT(both, 5u);
  EXPECT_EQ(pieces.substr(0, both), expected.substr(0, both));
}

TEST_F(CheckpointGenerationTest, TextNeedsAVocabularyOfBytes) {
  run(tiny(write_tokens("letters.h5", {}), {"training.steps=1"}), "letters");
  options_.checkpoint = at("letters");
  options_.prompt = "a";
  EXPECT_TRUE(holds(refused(), "has 257 tokens, but the model's vocabulary has 23"));
}

}  // namespace
}  // namespace ringtrain::testing
