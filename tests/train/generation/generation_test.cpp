// Generation against forward passes that know no cache: the greedy token must be the likeliest after every prefix, on
// any ring and for any architecture; what is drawn and where it ends; and what the program refuses.
#include <algorithm>
#include <limits>
#include <set>
#include <sstream>

#include "data/loader.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/random.h"
#include "kernels/elementwise.h"
#include "layers/model_parameters.h"
#include "parallel/launch/launcher.h"
#include "tests/support/paths.h"
#include "tests/train/train_fixture.h"
#include "train/generation/checkpoint_generation.h"
#include "train/generation/generator.h"

namespace ringtrain::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

class GenerationTest : public TrainTest {
 protected:
  Config model(std::vector<std::string> settings) const {
    settings.insert(settings.end(),
                    {"model.initializer_range=0.4", "training.seq_len=300", "training.feedforward_chunk=16"});
    return tiny("none", settings);
  }
  static Tokens random_prompt(std::int64_t length, std::uint64_t seed) {
    Tokens prompt;
    for (std::int64_t i = 0; i < length; ++i) {
      prompt.push_back(static_cast<std::int32_t>(random_below(seed, Purpose::test, static_cast<std::uint64_t>(i), 23)));
    }
    return prompt;
  }
  static Config on_ring(Config config, std::int64_t ranks, Layout layout = Layout::zigzag) {
    config.mesh.sequence = ranks;
    config.mesh.layout = layout;
    return config;
  }
  /// Gives a rank a random model, whose adapters do something.
  static void initialise(RankState& state) {
    state.model->initialise(3);
    const ParameterTable& table = state.parameters.table();
    for (int id = 0; id < static_cast<int>(table.all().size()); ++id) {
      Parameter parameter = table[id];
      if (!parameter.adapter) continue;
      parameter.init_stddev = 0.4;
      initialise_parameter(state.stream, parameter, 3, 0, state.parameters.weight(id));
    }
  }
  /// Generates with a random model. Returns the new tokens.
  static Tokens generated(const Config& config, const GenerationRequest& request,
                          const TokenObserver& observer = nullptr) {
    const RankPurpose purpose{
        .training = false, .prompt_tokens = std::ssize(request.prompt), .new_tokens = request.new_tokens};
    const ParameterTable table = make_parameter_table(config.model);
    const auto plans = plan_ranks(config, table, purpose);
    Tokens tokens;
    launch_threads({static_cast<int>(config.mesh.sequence), 60}, [&](Communicator& world) {
      ThreadPool pool(1);
      RankState state(config, table, purpose, world.rank(), Device::cpu(), pool, &world);
      initialise(state);
      const std::int64_t allocations = state.allocator.allocation_count();
      const GenerationRates rates = generate(state, request, [&](std::int32_t token) {
        tokens.push_back(token);
        return observer ? observer(token) : true;
      });
      EXPECT_EQ(state.allocator.allocation_count(), allocations);
      EXPECT_EQ(rates.prompt_tokens, std::ssize(request.prompt));
      for (const RankPlan& plan : plans) {
        if (std::ranges::find(plan.ranks, state.rank) != plan.ranks.end()) {
          EXPECT_EQ(state.allocator.peak().total, plan.peak.total) << "the plan is what is allocated";
        }
      }
    });
    return tokens;
  }
  /// Returns nll[v][t] in double of token v after tokens [0, t] of a text, by one forward pass for each v.
  static std::vector<std::vector<double>> teacher_forced(Config config, const Tokens& text) {
    config.mesh.sequence = 1;
    config.training.dtype = DType::float64;
    const std::int64_t length = std::ssize(text);
    const ParameterTable table = make_parameter_table(config.model);
    std::vector<std::vector<double>> nll;
    launch_threads({1, 60}, [&](Communicator& world) {
      ThreadPool pool(2);
      RankState state(config, table, {.training = false, .evaluation_lengths = {length}}, 0, Device::cpu(), pool,
                      &world);
      initialise(state);
      for (std::int32_t v = 0; v < 23; ++v) {
        load_sequence(state.batch, text, state.shard);
        std::fill_n(state.batch.labels().as<std::int32_t>(), length, v);
        const TensorView values = state.evaluation_nll.view().prefix({1, length});
        state.model->evaluate(state.batch, values);
        nll.emplace_back(values.as<double>(), values.as<double>() + length);
      }
    });
    return nll;
  }
  /// Expects each new token's nll after its prefix to be within `slack` of the least of all tokens.
  static void expect_greedy(const Config& config, const Tokens& prompt, const Tokens& tokens, double slack) {
    Tokens text = prompt;
    text.insert(text.end(), tokens.begin(), tokens.end());
    const auto nll = teacher_forced(config, text);
    for (std::size_t t = prompt.size() - 1; t + 1 < text.size(); ++t) {
      double least = std::numeric_limits<double>::infinity();
      for (const auto& of_token : nll) least = std::min(least, of_token[t]);
      ASSERT_LE(nll[text[t + 1]][t], least + slack) << "new token at " << t + 1;
    }
  }
};

const std::vector<std::pair<const char*, std::vector<std::string>>> models{
    {"llama", {}},
    {"untied, yarn",
     {"model.tie_word_embeddings=false", "model.rope_scaling.type=yarn", "model.rope_scaling.factor=4",
      "model.rope_scaling.original_max_position_embeddings=64"}},
    {"a window", {"model.architecture=mistral", "model.sliding_window=7"}},
    {"gpt2", {"model.architecture=gpt2", "model.max_position_embeddings=300", "model.num_key_value_heads=4"}},
    {"adapters", {"lora.rank=3", "lora.targets=[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]"}},
    {"qwen2", {"model.architecture=qwen2"}},
    {"qwen3", {"model.architecture=qwen3", "model.head_dim=12"}}};

TEST_F(GenerationTest, GreedyTokensAreTheLikeliestAfterEveryPrefix) {
  for (const auto& [name, settings] : models) {
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
  for (const auto& [name, settings] : models) {
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

TEST_F(GenerationTest, Float32IsGreedyToItsRounding) {
  Config config = model({});
  config.training.dtype = DType::float32;
  const Tokens prompt = random_prompt(40, 3);
  for (const std::int64_t ranks : {1, 2, 3}) {
    expect_greedy(config, prompt, generated(on_ring(config, ranks), {.prompt = prompt, .new_tokens = 150}), 2e-5);
  }
}

// Logits are off by some units of 2^-8 of the activations behind them, and are rounded to it themselves.
TEST_F(GenerationTest, Bfloat16IsGreedyToItsRounding) {
  Config config = model({});
  config.training.dtype = DType::bfloat16;
  const Tokens prompt = random_prompt(40, 3);
  for (const std::int64_t ranks : {1, 2, 3}) {
    const Tokens tokens = generated(on_ring(config, ranks), {.prompt = prompt, .new_tokens = 150});
    expect_greedy(config, prompt, tokens, 0.1);
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

TEST_F(GenerationTest, ACacheHoldsItsRanksTokensAlone) {
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
  // Two layers of keys and values of two heads of four doubles: 256 bytes a token.
  EXPECT_EQ(cache_bytes(1), 280u * 256);
  EXPECT_EQ(cache_bytes(4), 70u * 256);
}

// ---- The program, but for its command line -------------------------------------------------------------------------

class CheckpointGenerationTest : public GenerationTest {
 protected:
  /// Trains a model of bytes for a step.
  void SetUp() override {
    GenerationTest::SetUp();
    TextPlan plan;
    plan.vocab_size = 257;
    run(tiny(write_tokens("bytes.h5", plan),
             {"training.steps=1", "model.vocab_size=257", "model.initializer_range=0.4"}),
        "run");
    options_.checkpoint = at("run");
    options_.max_new_tokens = 20;
  }
  std::string text(GenerationSummary* summary = nullptr) {
    std::string all;
    Launcher launcher;
    const GenerationSummary made =
        generate_from_checkpoint(options_, launcher, [&](std::string_view piece) { all += piece; });
    if (summary) *summary = made;
    return all;
  }
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
  EXPECT_NE(summary_text(summary).find("weights read at"), std::string::npos);
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
  EXPECT_NE(summary_text(summary).find("context of 37 tokens is full"), std::string::npos);
}

TEST_F(CheckpointGenerationTest, EndsAllRanksWithTheFirstPieceThatCannotBePrinted) {
  options_.tokens = {'a', 'b'};
  for (const std::int64_t ranks : {1, 2}) {
    options_.sequence_ranks = ranks;
    int pieces = 0;
    Launcher launcher;
    const std::string sentence = error_of(ExitCode::usage, [&] {
      generate_from_checkpoint(options_, launcher, [&](std::string_view) {
        ++pieces;
        fail(ExitCode::usage, "nobody reads");
      });
    });
    EXPECT_NE(sentence.find("nobody reads"), std::string::npos) << sentence;
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
  EXPECT_NE(refused().find("--mesh 1x38: the text has at most 37 positions"), std::string::npos);
}

TEST_F(CheckpointGenerationTest, OneSentenceForEachPromptThatCannotBe) {
  EXPECT_NE(refused().find("the prompt is empty"), std::string::npos);
  options_.prompt = std::string(38, 'x');
  EXPECT_NE(refused().find("the prompt has 38 tokens, but the model's context is 37"), std::string::npos);
  options_.prompt = "";
  options_.tokens = {5, 257};
  EXPECT_NE(refused().find("257 is no token of this model, whose vocabulary has the ids 0 to 256"), std::string::npos);
  options_.tokens = {-1};
  EXPECT_NE(refused().find("-1 is no token"), std::string::npos);
  options_.tokens = {5};
  options_.sampling.top_k = 4;
  EXPECT_NE(refused().find("--top-k"), std::string::npos);
  options_.sampling = {};
  options_.checkpoint = at("nothing");
  refused(ExitCode::checkpoint);
}

TEST_F(CheckpointGenerationTest, ATokenizerMakesTokensOfThePromptAndTextOfTheNewOnes) {
  TextPlan plan;
  plan.vocab_size = 601;
  run(tiny(write_tokens("pieces.h5", plan),
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
  // Without a tokenizer another token ends the text, so one may be longer.
  const std::size_t both = std::min(pieces.size(), expected.size());
  EXPECT_GT(both, 5u);
  EXPECT_EQ(pieces.substr(0, both), expected.substr(0, both));
}

TEST_F(CheckpointGenerationTest, TextNeedsAVocabularyOfBytes) {
  run(tiny(write_tokens("letters.h5", {}), {"training.steps=1"}), "letters");
  options_.checkpoint = at("letters");
  options_.prompt = "a";
  EXPECT_NE(refused().find("has 257 tokens, but the model's vocabulary 23"), std::string::npos);
}

}  // namespace
}  // namespace ringtrain::testing
