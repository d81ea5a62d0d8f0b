// Traits: those of each architecture, which keys of a config it can use, and the refusal of a combination that no layer
// computes.
#include "layers/model_spec.h"
#include "framework/config/config.h"
#include "layers/check_model.h"

#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "tests/framework/config_text.h"
#include "tests/layers/harness.h"
#include "tests/support/error_of.h"

namespace ringtrain::testing {
namespace {

/// The messages of the reader and this floor's rule.
std::string model_complaint(const std::string& text, const Settings& settings = {}) {
  return complaint(text, settings, check_model);
}

TEST(ModelSpec, EveryArchitectureHasASpecThatTheLayersCompute) {
  for (const Architecture architecture : all_architectures) {
    const ModelSpec spec = model_spec(small_model(architecture));
    EXPECT_EQ(spec.architecture, name_of(architecture));
    EXPECT_EQ(spec.num_hidden_layers(), 3);
    EXPECT_NO_THROW(check_spec(spec));
  }
}

TEST(ModelSpec, TheMaskOfEveryLayerIsThatOfTheConfig) {
  for (const std::int64_t window : {0, 5}) {
    ModelConfig config = small_llama();
    config.sliding_window = window;
    const AttentionMask expected{.causal = true, .window = window};
    const ModelSpec spec = model_spec(config);
    for (const LayerSpec& layer : spec.layers) {
      EXPECT_EQ(layer.mask, expected);
      EXPECT_TRUE(layer.rope);
      EXPECT_EQ(layer.frequencies, 0);
    }
    ASSERT_EQ(layers_by_mask(config).size(), 1u);
    EXPECT_EQ(layers_by_mask(config)[0].layers, (std::vector<std::int64_t>{0, 1, 2}));
  }
}

TEST(ModelSpec, ListsOfLayersRepeat) {
  ModelConfig config = small_llama();
  config.num_hidden_layers = 5;
  config.sliding_window = 7;
  config.layer_types = {LayerType::sliding_attention, LayerType::full_attention};
  config.layer_positions = {LayerPositions::rope, LayerPositions::rope, LayerPositions::none};
  config.sliding_rope_theta = 50;
  const ModelSpec spec = model_spec(config);
  std::vector<std::int64_t> windows;
  std::vector<int> rotates, frequencies;
  for (const LayerSpec& layer : spec.layers) {
    windows.push_back(layer.mask.window);
    rotates.push_back(layer.rope ? 1 : 0);
    frequencies.push_back(layer.frequencies);
  }
  EXPECT_EQ(windows, (std::vector<std::int64_t>{7, 0, 7, 0, 7}));
  EXPECT_EQ(rotates, (std::vector<int>{1, 1, 0, 1, 1}));
  EXPECT_EQ(frequencies, (std::vector<int>{1, 0, 1, 0, 1}));
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_EQ(spec.ropes[1].theta, 50);
  const std::vector<MaskedLayers> masks = layers_by_mask(config);
  ASSERT_EQ(masks.size(), 2u);
  EXPECT_EQ(masks[0].layers, (std::vector<std::int64_t>{0, 2, 4}));
  EXPECT_EQ(masks[1].layers, (std::vector<std::int64_t>{1, 3}));
}

TEST(ModelSpec, AValueThatNamesNoArchitectureIsRefused) {
  ModelConfig config = small_llama();
  config.architecture = static_cast<Architecture>(77);
  EXPECT_THROW(model_spec(config), Error);
}

struct Refusal {
  const char* name;
  std::function<void(ModelSpec&)> change;
  std::string sentence;
  Device device = {};
};
class RefusedSpec : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedSpec, InOneSentence) {
  ModelSpec spec = model_spec(small_llama());
  GetParam().change(spec);
  const std::string expected = "a model of architecture llama cannot be computed: " + GetParam().sentence;
  EXPECT_EQ(testing::error_of(ExitCode::usage, [&] { check_spec(spec, !GetParam().device.is_cpu()); }), expected);
  // And by the model itself, before it allocates anything.
  Allocator allocator(GetParam().device, Allocator::Mode::plan);
  ThreadPool pool(1);
  Stream stream(nullptr, GetParam().device, pool, nullptr);
  const ParameterTable table = make_parameter_table(small_llama());
  ParameterStore parameters(allocator, table, stream, {.dtype = DType::float32, .gradients = true});
  const std::size_t before = allocator.live().size();
  EXPECT_THROW(make_transformer(spec, ExecutionShape{}, allocator, parameters, stream, nullptr), Error);
  EXPECT_EQ(allocator.live().size(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Traits, RefusedSpec,
    ::testing::Values(Refusal{"NoLayers", [](ModelSpec& spec) { spec.layers.clear(); }, "it needs at least one layer"},
                      Refusal{"NoNorms", [](ModelSpec& spec) { spec.norm_before = false; },
                              "attention and feedforward each need a norm before or after them"},
                      Refusal{"LearnedPositionsWithoutATable",
                              [](ModelSpec& spec) {
                                spec.positions = Positions::learned;
                                for (LayerSpec& layer : spec.layers) layer.rope = false;
                              },
                              "learned positions need a table of at least one row (model.max_position_embeddings)"},
                      Refusal{"RopeWithoutRotaryPositions", [](ModelSpec& spec) { spec.positions = Positions::none; },
                              "a layer rotates queries and keys, but positions are not rotary"},
                      Refusal{"OddHeads", [](ModelSpec& spec) { spec.head_dim = 5; },
                              "rotary positions rotate pairs of elements, so model.head_dim must be even"},
                      Refusal{"FrequenciesOfNobody", [](ModelSpec& spec) { spec.layers[1].frequencies = 1; },
                              "a layer uses rotary frequencies that the model does not define"},
                      Refusal{"LayerNormAfter",
                              [](ModelSpec& spec) {
                                spec.norm.kind = NormKind::layer_norm;
                                spec.norm_after = true;
                              },
                              "a LayerNorm must come before attention and feedforward, and not add 1 to its weight"},
                      Refusal{"NoScale", [](ModelSpec& spec) { spec.attention_scale = 0; },
                              "the scale of attention scores must be above 0"},
                      Refusal{"LongHeadsOnAGpu", [](ModelSpec& spec) { spec.head_dim = 258; },
                              "on a GPU, model.head_dim must be at most 256", Device::cuda(0)},
                      Refusal{"ALargeWeightOnAGpu", [](ModelSpec& spec) { spec.vocab_size = 1 << 28; },
                              "on a GPU, a weight has at most 2147483647 elements, not 268435456 x 12",
                              Device::cuda(0)}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ModelKeys, RotaryTurnsPairs) {
  EXPECT_EQ(model_complaint(base, {"model.head_dim=5"}),
            "--set model.head_dim=5: is 5 (default: hidden_size / num_attention_heads = 256 / 4), but rotary embedding "
            "rotates pairs of elements: it must be even");
  EXPECT_EQ(model_complaint(base, {"model.architecture=gpt2", "model.max_position_embeddings=64", "model.head_dim=5"}),
            "");
}

TEST(ModelKeys, ListsOfLayersSayWhatHasAnEffect) {
  const std::string types = "layer_types: [sliding_attention, full_attention]";
  EXPECT_EQ(model_complaint(with("model", types + "\n  sliding_window: 8")), "");
  EXPECT_EQ(model_complaint(with("model", types)),
            "x.yaml:7: model.layer_types: has sliding_attention, which needs model.sliding_window");
  EXPECT_EQ(model_complaint(with("model", "layer_types: [full_attention]\n  sliding_window: 8")),
            "x.yaml:7: model.layer_types: has no sliding_attention, so model.sliding_window = 8 has no effect; leave "
            "one of them out");
  EXPECT_EQ(model_complaint(with("model", "num_hidden_layers: 2\n  layer_positions: [rope, none, rope]")),
            "x.yaml:8: model.layer_positions: has 3 entries, but there are model.num_hidden_layers = 2 layers");
  EXPECT_EQ(model_complaint(with("model", "sliding_rope_theta: 100")),
            "x.yaml:7: model.sliding_rope_theta: 100 has no effect: no layer has both a window and rotary positions; "
            "leave it out");
  EXPECT_EQ(model_complaint(with("model", "layer_types: [sliding]")),
            "x.yaml:7: model.layer_types: is the text \"sliding\", but must be one of full_attention, "
            "sliding_attention");
  EXPECT_EQ(model_complaint(with("model", "layer_positions: rope")),
            "x.yaml:7: model.layer_positions: is the text \"rope\", but must be a list of rope | none");
}

TEST(ModelKeys, ALengthThatIsMeantIsNoLimitOfRotaryPositions) {
  for (const Architecture architecture : all_architectures) {
    const std::string name = name_of(architecture);
    const std::string found =
        model_complaint(with("model", "architecture: " + name + "\n  max_position_embeddings: 63"));
    const bool learned = model_spec(small_model(architecture)).positions == Positions::learned;
    EXPECT_EQ(found.empty(), !learned) << found;
  }
}

TEST(ModelKeys, BiasesAreAChoiceOfSomeArchitectures) {
  const auto refused = [](const std::string& key, const std::string& name) {
    return "x.yaml:8: model." + key + ": true has no effect with model.architecture " + name +
           ", whose biases are fixed; leave it out";
  };
  for (const auto& [name, attention, mlp] :
       std::vector<std::tuple<std::string, bool, bool>>{{"llama", true, true},
                                                        {"mistral", false, false},
                                                        {"qwen2", false, false},
                                                        {"qwen3", true, false},
                                                        {"smollm3", true, true},
                                                        {"olmo2", true, false},
                                                        {"gemma3_text", true, false}}) {
    const std::string architecture = "architecture: " + name + "\n  ";
    EXPECT_EQ(model_complaint(with("model", architecture + "attention_bias: true")),
              attention ? "" : refused("attention_bias", name));
    EXPECT_EQ(model_complaint(with("model", architecture + "mlp_bias: true")), mlp ? "" : refused("mlp_bias", name));
  }
}

TEST(ModelSpec, ChosenBiasesAreTraits) {
  ModelConfig config = small_llama();
  config.attention_bias = true;
  EXPECT_TRUE(model_spec(config).biases.query_key_value);
  EXPECT_TRUE(model_spec(config).biases.attention_output);
  EXPECT_FALSE(model_spec(config).biases.feedforward);
  config.mlp_bias = true;
  EXPECT_TRUE(model_spec(config).biases.feedforward);
}

TEST(ModelKeys, ATableHoldsEveryLength) {
  EXPECT_EQ(model_complaint(with("model", "architecture: gpt2")),
            "x.yaml: model.max_position_embeddings: gpt2's table of 0 positions is shorter than training.seq_len = 64; "
            "make it at least that");
  const std::string evaluation = "evaluation={interval: 1, context_lengths: [64, 65], target_tokens: 8}";
  EXPECT_EQ(model_complaint(with("model", "architecture: gpt2\n  max_position_embeddings: 64"), {evaluation}),
            "--set " + evaluation +
                ": evaluation.context_lengths: 65 is beyond gpt2's table of model.max_position_embeddings = 64 "
                "positions");
}

TEST(ModelKeys, OnlyRotaryPositionsAreScaled) {
  EXPECT_EQ(model_complaint(with("model",
                                 "architecture: gpt2\n  max_position_embeddings: 64\n  rope_theta: 10000\n"
                                 "  rope_scaling: {type: linear, factor: 2}")),
            "x.yaml:9: model.rope_theta: 10000 has no effect with model.architecture gpt2, which has no rotary "
            "positions; leave it out\n"
            "x.yaml:10: model.rope_scaling.type: model.architecture gpt2 has no rotary positions to scale; leave it "
            "out");
}

}  // namespace
}  // namespace ringtrain::testing
