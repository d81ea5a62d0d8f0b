// model.from: a config whose model is stored elsewhere. Keys next to it override the model's, or must agree.
#include <gtest/gtest.h>

#include "framework/config/config.h"
#include "framework/error.h"
#include "tests/framework/config_text.h"

namespace ringtrain::testing {
namespace {

/// The model at "far": none of its values is a default.
ModelConfig far_model() {
  ModelConfig model;
  model.architecture = Architecture::qwen3;
  model.vocab_size = 300;
  model.hidden_size = 96;
  model.num_hidden_layers = 3;
  model.num_attention_heads = 6;
  model.num_key_value_heads = 2;
  model.head_dim = 20;
  model.intermediate_size = 160;
  model.rope_theta = 1.5e4;
  model.rope_scaling.type = RopeType::llama3;
  model.rope_scaling.factor = 8;
  model.rope_scaling.high_freq_factor = 5;
  model.rope_scaling.original_max_position_embeddings = 77;
  model.max_position_embeddings = 616;
  model.sliding_window = 33;
  model.rms_norm_eps = 1e-6;
  model.initializer_range = 0.03;
  model.tie_word_embeddings = false;
  model.attention_bias = true;
  return model;
}

ModelConfig read_model(const std::string& from) {
  if (from != "far") fail(ExitCode::checkpoint, "{}: there is nothing", from);
  return far_model();
}

Config parsed(const std::string& text, const Settings& settings = {}) {
  return parse_config(text, "x.yaml", settings, ConfigUse::run, {}, {.model = read_model});
}

std::string complaint_with(const std::string& text, const Settings& settings = {}) {
  return complaint_of([&] { parsed(text, settings); });
}

/// The keys of the section model that differ from far_model(), each with its value.
std::string changed(const Config& config) {
  Config expected = config;
  expected.model = far_model();
  std::string text;
  for (const ConfigDifference& d : differences(expected, config)) text += d.key + "=" + d.after + " ";
  return text;
}

TEST(ModelFrom, EveryKeyIsThatModels) {
  EXPECT_EQ(changed(parsed(with("model", "from: far"))), "");
  EXPECT_EQ(changed(parsed(base, {"model.from=far"})), "");
  EXPECT_EQ(changed(parsed(with("model", "from: near"), {"model.from=far"})), "");
}

TEST(ModelFrom, OtherwiseTheProgramNamesTheModel) {
  const ConfigLookup lookup{.model = read_model, .model_otherwise = "far"};
  const Config config = parse_config(base, "x.yaml", {}, ConfigUse::run, {}, lookup);
  EXPECT_EQ(changed(config), "");
  EXPECT_EQ(config.model.from, "far");
  const Config described = parse_config(with("model", "hidden_size: 128"), "x.yaml", {}, ConfigUse::run, {}, lookup);
  EXPECT_EQ(described.model.from, "");
  EXPECT_EQ(described.model.num_hidden_layers, ModelConfig{}.num_hidden_layers);
}

TEST(ModelFrom, FromScratchNeedsAModelWhoseSizesItTakes) {
  EXPECT_TRUE(parsed(with("model", "from: far\n  from_scratch: true")).model.from_scratch);
  EXPECT_EQ(complaint_with(with("model", "from_scratch: true")),
            "x.yaml:7: model.from_scratch: is true, but there is no model.from to take sizes from; leave it out");
}

TEST(ModelFrom, WithoutAModelTheDataGiveTheVocabulary) {
  const auto vocabulary = [](const std::string& text) {
    const ConfigLookup lookup{.model = read_model, .vocabulary = [](const Config&) { return std::int64_t{77}; }};
    return parse_config(text, "x.yaml", {}, ConfigUse::run, {}, lookup).model.vocab_size;
  };
  EXPECT_EQ(vocabulary(base), 77);
  EXPECT_EQ(vocabulary(with("model", "hidden_size: 128")), 77);
  EXPECT_EQ(vocabulary(with("model", "vocab_size: 90")), 90);
  EXPECT_EQ(vocabulary(with("model", "from: far")), 300);
}

TEST(ModelFrom, TheResolvedConfigIsComplete) {
  const Config config = parsed(with("model", "from: far"));
  EXPECT_EQ(to_yaml(config).find("from:"), std::string::npos);
  EXPECT_EQ(changed(parse_config(to_yaml(config), "resolved.yaml", {})), "");
}

TEST(ModelFrom, WhatLeavesTheWeightsAsTheyAreGoesFirst) {
  EXPECT_EQ(changed(parsed(with("model", "from: far\n  sliding_window: 0\n  max_position_embeddings: 1232"),
                           {"model.rope_theta=5", "model.rms_norm_eps=1e-5", "model.initializer_range=0.5"})),
            "model.rope_theta=5 model.max_position_embeddings=1232 model.sliding_window=0 model.rms_norm_eps=1e-05 "
            "model.initializer_range=0.5 ");
  EXPECT_EQ(changed(parsed(with("model", "from: far\n  rope_scaling: {factor: 16}"))), "model.rope_scaling.factor=16 ");
}

TEST(ModelFrom, AnotherTypeOfScalingReplacesTheSection) {
  const RopeScalingConfig scaling =
      parsed(with("model", "from: far\n  rope_scaling: {type: yarn, original_max_position_embeddings: 154}"))
          .model.rope_scaling;
  EXPECT_EQ(scaling.type, RopeType::yarn);
  EXPECT_EQ(scaling.factor, 4);  // 616 / 154
  EXPECT_EQ(scaling.high_freq_factor, RopeScalingConfig{}.high_freq_factor);
  EXPECT_EQ(parsed(base, {"model.from=far", "model.rope_scaling.type=none"}).model.rope_scaling.factor, 1);
}

TEST(ModelFrom, WhatWouldBeOtherWeightsMustAgree) {
  EXPECT_EQ(complaint_with(with("model", "from: far\n  hidden_size: 96\n  architecture: qwen3\n  head_dim: 20")), "");
  EXPECT_EQ(complaint_with(with("model", "from: far\n  hidden_size: 48\n  head_dim: 0"), {"model.vocab_size=301"}),
            "x.yaml:8: model.hidden_size: is 48, but the model of model.from has 96; leave it out\n"
            "x.yaml:9: model.head_dim: is 8, but the model of model.from has 20; leave it out\n"
            "--set model.vocab_size=301: is 301, but the model of model.from has 300; leave it out");
  EXPECT_EQ(complaint_with(with("model", "from: far\n  tie_word_embeddings: true\n  architecture: llama")),
            "x.yaml:8: model.tie_word_embeddings: is true, but the model of model.from has false; leave it out\n"
            "x.yaml:9: model.architecture: is llama, but the model of model.from has qwen3; leave it out");
}

TEST(ModelFrom, AModelThatCannotBeHadIsAProblemOfItsLine) {
  EXPECT_EQ(complaint_with(with("model", "from: near\n  hidden_size: x")),
            "x.yaml:7: model.from: near: there is nothing\n"
            "x.yaml:8: model.hidden_size: is the text \"x\", but must be an integer from 1 to 262144");
  EXPECT_EQ(complaint(with("model", "from: far")),
            "x.yaml:7: model.from: depends on files that this program does not read; give the keys of model instead");
}

TEST(ModelFrom, OtherProblemsAreReportedOnce) {
  EXPECT_EQ(complaint_with(with("model", "from: far\n  hiden_size: 3")),
            "x.yaml:8: model.hiden_size: unknown key; did you mean model.hidden_size?");
}

}  // namespace
}  // namespace ringtrain::testing
