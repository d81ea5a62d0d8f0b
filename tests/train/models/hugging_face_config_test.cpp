// config.json of a Hugging Face folder: what each class takes it for, old and new rotary keys, what is refused and in
// which words, and that what is written is read back.
#include "train/models/hugging_face_config.h"
#include "framework/config/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/config/read_config.h"
#include "framework/error.h"
#include "layers/model_parameters.h"
#include "layers/model_spec.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

/// A file of a class, small enough to be read by eye, changed by a merge patch (RFC 7396: null removes a key).
json file(const std::string& model_type, const char* changes = "{}") {
  json base = {{"model_type", model_type}, {"vocab_size", 96}};
  if (model_type == "gpt2") {
    base.update({{"n_embd", 48}, {"n_layer", 2}, {"n_head", 4}, {"n_positions", 64}});
  } else {
    base.update({{"hidden_size", 48},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"intermediate_size", 80}});
  }
  base.merge_patch(json::parse(changes));
  return base;
}

HuggingFaceConfig read(const json& content) {
  return parse_hugging_face_config(content.dump(), "DIR/config.json");
}

std::string refusal(const json& content) {
  try {
    read(content);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    return error.what();
  }
  return "";
}

/// The keys of a model that differ, as text: for messages.
std::string difference(const ModelConfig& a, const ModelConfig& b) {
  Config one, other;
  one.model = a;
  other.model = b;
  std::string text;
  for (const ConfigDifference& d : differences(one, other)) text += d.key + " " + d.before + " " + d.after + "\n";
  return text;
}

const std::vector<std::string> all_types{"llama", "mistral", "qwen2",       "qwen3", "smollm3",
                                         "olmo2", "olmo3",   "gemma3_text", "gpt2"};

TEST(HuggingFaceConfigTest, AbsentKeysHaveTheDefaultsOfTheClass) {
  const auto of = [](const char* type) { return read(json{{"model_type", type}}).model; };
  const ModelConfig llama = of("llama"), mistral = of("mistral"), qwen2 = of("qwen2"), qwen3 = of("qwen3"),
                    gpt2 = of("gpt2");
  EXPECT_EQ(llama.vocab_size, 32000);
  EXPECT_EQ(llama.hidden_size, 4096);
  EXPECT_EQ(llama.intermediate_size, 11008);
  EXPECT_EQ(llama.num_hidden_layers, 32);
  EXPECT_EQ(llama.num_key_value_heads, 32);
  EXPECT_EQ(llama.head_dim, 128);
  EXPECT_EQ(llama.max_position_embeddings, 2048);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_EQ(llama.rope_theta, 10000);
  EXPECT_FALSE(llama.tie_word_embeddings);
  EXPECT_EQ(mistral.sliding_window, 4096);
  EXPECT_EQ(mistral.num_key_value_heads, 8);
  EXPECT_EQ(mistral.intermediate_size, 14336);
  EXPECT_EQ(mistral.max_position_embeddings, 131072);
  EXPECT_EQ(qwen2.vocab_size, 151936);
  EXPECT_EQ(qwen2.sliding_window, 0);
  EXPECT_EQ(qwen2.max_position_embeddings, 32768);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(read(file("qwen3")).model.head_dim, 128);
  EXPECT_EQ(read(file("qwen2")).model.head_dim, 12);
  EXPECT_EQ(gpt2.vocab_size, 50257);
  EXPECT_EQ(gpt2.hidden_size, 768);
  EXPECT_EQ(gpt2.intermediate_size, 3072);
  EXPECT_EQ(gpt2.max_position_embeddings, 1024);
  EXPECT_EQ(gpt2.rms_norm_eps, 1e-5);
  EXPECT_TRUE(gpt2.tie_word_embeddings);
}

TEST(HuggingFaceConfigTest, NullMeansWhatTheClassMeansByIt) {
  EXPECT_EQ(read(file("mistral", R"({"sliding_window": 7})")).model.sliding_window, 7);
  json open = file("mistral"), grouped = file("qwen2"), wide = file("gpt2");
  open["sliding_window"] = nullptr;
  EXPECT_EQ(read(open).model.sliding_window, 0);
  grouped["num_key_value_heads"] = nullptr;
  EXPECT_EQ(read(grouped).model.num_key_value_heads, 4);
  wide["n_inner"] = nullptr;
  EXPECT_EQ(read(wide).model.intermediate_size, 192);
  open["num_hidden_layers"] = nullptr;
  EXPECT_EQ(refusal(open), "DIR/config.json: num_hidden_layers: is null, but must be a whole number");
}

TEST(HuggingFaceConfigTest, TheWindowOfQwenIsInTheLayersThatTheFileNames) {
  const char* const on = R"({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0})";
  EXPECT_EQ(read(file("qwen2", R"({"sliding_window": 9, "max_window_layers": 0})")).model.sliding_window, 0);
  EXPECT_EQ(read(file("qwen2", on)).model.sliding_window, 9);
  EXPECT_EQ(read(file("qwen2", R"({"use_sliding_window": true})")).model.sliding_window, 0);  // from layer 28 on
  json listed = file("qwen3", on);
  listed["layer_types"] = {"full_attention", "full_attention"};  // what counts in transformers 5
  EXPECT_EQ(read(listed).model.sliding_window, 0);
  listed["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(read(listed).model.sliding_window, 9);
  EXPECT_EQ(read(listed).model.layer_types, (std::vector{LayerType::sliding_attention, LayerType::full_attention}));
  const ModelConfig late =
      read(file("qwen2", R"({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1})")).model;
  EXPECT_EQ(late.layer_types, (std::vector{LayerType::full_attention, LayerType::sliding_attention}));
  EXPECT_EQ(late.sliding_window, 9);
  listed["layer_types"] = {"sliding_attention"};
  EXPECT_EQ(refusal(listed),
            "DIR/config.json: layer_types: must name full_attention or sliding_attention for each of 2 layers");
  listed["layer_types"] = {"sliding_attention", "chunked_attention"};
  EXPECT_EQ(refusal(listed),
            "DIR/config.json: layer_types: must name full_attention or sliding_attention for each of 2 layers");
}

TEST(HuggingFaceConfigTest, LayersThatDifferAreThoseOfTheClass) {
  const ModelConfig smollm3 = read(json{{"model_type", "smollm3"}}).model;
  EXPECT_EQ(smollm3.layer_positions,
            (std::vector{LayerPositions::rope, LayerPositions::rope, LayerPositions::rope, LayerPositions::none}));
  EXPECT_EQ(smollm3.rope_theta, 2000000);
  EXPECT_TRUE(smollm3.tie_word_embeddings);
  EXPECT_EQ(smollm3.sliding_window, 0);
  const ModelConfig listed = read(file("smollm3", R"({"no_rope_layers": [0, 1]})")).model;
  EXPECT_EQ(listed.layer_positions, (std::vector{LayerPositions::none, LayerPositions::rope}));
  EXPECT_EQ(refusal(file("smollm3", R"({"no_rope_layers": [0]})")),
            "DIR/config.json: no_rope_layers: has 1 entries for 2 layers");

  const ModelConfig olmo3 = read(json{{"model_type", "olmo3"}}).model;
  EXPECT_EQ(olmo3.layer_types, (std::vector{LayerType::sliding_attention, LayerType::sliding_attention,
                                            LayerType::sliding_attention, LayerType::full_attention}));
  EXPECT_EQ(olmo3.sliding_window, 4096);
  EXPECT_EQ(olmo3.rope_theta, 500000);
  EXPECT_EQ(olmo3.sliding_rope_theta, 0);  // the one base
  EXPECT_EQ(olmo3.rms_norm_eps, 1e-5);
  const char* const yarn = R"({"rope_theta": 500000, "num_hidden_layers": 4, "rope_scaling": {"rope_type": "yarn",
                               "factor": 8.0, "original_max_position_embeddings": 8192}})";
  const ModelConfig scaled = read(file("olmo3", yarn)).model;  // as published: layers with a window are not scaled
  EXPECT_EQ(scaled.rope_scaling.type, RopeType::yarn);
  EXPECT_EQ(scaled.sliding_rope_theta, 500000);

  // A file of transformers 4 has one base, which is that of all layers there; transformers 5.23 gives it to those
  // without a window alone. What is written has a section for each kind, and is the same model in both.
  const HuggingFaceConfig other_base = read(file("olmo3", R"({"rope_theta": 10000.0, "num_hidden_layers": 4})"));
  EXPECT_EQ(other_base.model.rope_theta, 10000);
  EXPECT_EQ(other_base.model.sliding_rope_theta, 0);
  EXPECT_EQ(other_base.logs, std::vector<std::string>{
                                 "DIR/config.json: rope_theta = 10000 is the base of all layers, as in transformers 4; "
                                 "transformers 5 gives those with a window 500000"});
  const json written = json::parse(
      write_hugging_face_config(other_base.model, {.dtype = "float32", .context_length = 0, .ends = {1, {2}}}));
  EXPECT_EQ(written["rope_theta"], 10000);
  for (const char* const kind : {"full_attention", "sliding_attention"}) {
    EXPECT_EQ(written["rope_parameters"][kind]["rope_theta"], 10000) << kind;
  }
  const char* const far = R"({"rope_theta": 1000000, "num_hidden_layers": 4, "rope_scaling": {"rope_type": "yarn",
                              "factor": 8.0, "original_max_position_embeddings": 8192}})";
  EXPECT_EQ(read(file("olmo3", far)).model.sliding_rope_theta, 1000000);

  const ModelConfig gemma = read(json{{"model_type", "gemma3_text"}}).model;
  EXPECT_EQ(gemma.layer_types.size(), 6u);
  EXPECT_EQ(gemma.layer_types.back(), LayerType::full_attention);
  EXPECT_EQ(gemma.rope_theta, 1000000);
  EXPECT_EQ(gemma.sliding_rope_theta, 10000);
  EXPECT_EQ(gemma.query_pre_attn_scalar, 256);
  EXPECT_EQ(gemma.head_dim, 256);
  const char* const older = R"({"rope_local_base_freq": 2000, "rope_theta": 3000, "sliding_window": 512,
      "sliding_window_pattern": 2, "cache_implementation": "hybrid", "query_pre_attn_scalar": 168,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "attn_logit_softcapping": null})";
  const ModelConfig large = read(file("gemma3_text", older)).model;
  EXPECT_EQ(large.rope_theta, 3000);
  EXPECT_EQ(large.sliding_rope_theta, 2000);
  EXPECT_EQ(large.rope_scaling.factor, 8);
  EXPECT_EQ(large.layer_types, (std::vector{LayerType::sliding_attention, LayerType::full_attention}));
  EXPECT_EQ(refusal(file("gemma3_text", R"({"attn_logit_softcapping": 50.0})")),
            "DIR/config.json: attn_logit_softcapping: is 50.0; this class has no softcap on attention scores");
  EXPECT_EQ(refusal(file("gemma3_text", R"({"rope_parameters": {"sliding_attention": {"rope_type": "linear",
                                            "factor": 2}}, "num_hidden_layers": 6})")),
            "DIR/config.json: rope_parameters.sliding_attention: scaled positions of layers with a window, unlike "
            "those of the others, are not computed here");
  const char* const untruncated = R"({"num_hidden_layers": 4, "rope_scaling": {"rope_type": "yarn", "factor": 8.0,
                                      "original_max_position_embeddings": 8192, "truncate": false}})";
  EXPECT_EQ(refusal(file("olmo3", untruncated)),
            "DIR/config.json: truncate: transformers computes this architecture with yarn's truncate as true, whatever "
            "its file says");
}

TEST(HuggingFaceConfigTest, DefaultsAreThoseOfTheClasses) {
  const json defaults = json::parse(std::ifstream(source_folder() + "/tests/golden/hugging_face_defaults.json"));
  ASSERT_EQ(defaults.size(), all_architectures.size());
  for (const auto& [type, saved] : defaults.items()) {
    EXPECT_EQ(difference(read(saved).model, read(json{{"model_type", type}}).model), "") << type;
  }
}

TEST(HuggingFaceConfigTest, PublishedModelsHaveTheParametersThatTransformersCounts) {
  const json published = json::parse(std::ifstream(source_folder() + "/tests/golden/published_configs.json"));
  ASSERT_GE(published.size(), 26U);
  for (const auto& [name, known] : published.items()) {
    EXPECT_EQ(make_parameter_table(read(known.at("config")).model).count(), known.at("parameters")) << name;
  }
}

TEST(HuggingFaceConfigTest, SoftcapsAndFactorsAreThoseOfTheClass) {
  const ModelConfig gemma = read(json{{"model_type", "gemma2"}}).model;
  EXPECT_EQ(gemma.attention_softcap, 50);
  EXPECT_EQ(gemma.final_softcap, 30);
  EXPECT_EQ(gemma.layer_types, (std::vector{LayerType::sliding_attention, LayerType::full_attention}));
  EXPECT_EQ(gemma.sliding_window, 4096);
  json without = file("gemma2");
  without.update({{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}});
  const ModelConfig plain = read(without).model;
  EXPECT_EQ(plain.attention_softcap, 0);
  EXPECT_EQ(plain.final_softcap, 0);
  EXPECT_EQ(refusal(file("gemma2", R"({"attn_logit_softcapping": 0})")),
            "DIR/config.json: attn_logit_softcapping: must be above 0, or null");
  EXPECT_EQ(refusal(file("llama", R"({"final_logit_softcapping": 30.0})")),
            "DIR/config.json: final_logit_softcapping: is 30.0; this class has no softcap on logits");

  const ModelConfig granite = read(file("granite", R"({"attention_multiplier": 0.0078125, "embedding_multiplier": 12,
      "residual_multiplier": 0.22, "logits_scaling": 16})"))
                                  .model;  // as published
  EXPECT_EQ(granite.query_pre_attn_scalar, 16384);
  EXPECT_EQ(model_spec(granite).attention_scale, 0.0078125);
  EXPECT_EQ(granite.embedding_multiplier, 12);
  EXPECT_EQ(granite.residual_multiplier, 0.22);
  EXPECT_EQ(granite.logits_scaling, 16);
  EXPECT_EQ(refusal(file("granite", R"({"residual_multiplier": 0})")),
            "DIR/config.json: residual_multiplier: must be above 0");
  EXPECT_EQ(refusal(file("llama", R"({"residual_multiplier": 0.5})")),
            "DIR/config.json: residual_multiplier: is 0.5; this class does not scale what is added to the residual "
            "stream");
}

TEST(HuggingFaceConfigTest, Phi3HasLongropeAlone) {
  const ModelConfig plain = read(json{{"model_type", "phi3"}}).model;
  EXPECT_EQ(plain.sliding_window, 0);  // absent is none, which for a Mistral is 4096
  EXPECT_EQ(plain.rope_scaling.type, RopeType::none);
  const char* const long_one = R"({"head_dim": 4, "max_position_embeddings": 131072, "sliding_window": 2047,
      "rope_scaling": {"type": "yarn", "short_factor": [1.0, 1.25], "long_factor": [1, 40.5]}})";
  const HuggingFaceConfig read_long = read(file("phi3", long_one));
  EXPECT_EQ(read_long.model.rope_scaling.type, RopeType::longrope);  // so its files of 2024 say
  EXPECT_EQ(read_long.model.rope_scaling.original_max_position_embeddings, 4096);
  EXPECT_EQ(read_long.model.rope_scaling.factor, 32);
  EXPECT_EQ(read_long.model.sliding_window, 2047);
  EXPECT_TRUE(read_long.logs.empty());
  EXPECT_EQ(
      refusal(file("phi3", R"({"rope_scaling": {"type": "linear", "factor": 2}})")),
      "DIR/config.json: rope_scaling.rope_type: \"linear\" is nothing that a Phi3ForCausalLM has: default, longrope");
  EXPECT_EQ(refusal(file("phi3", R"({"partial_rotary_factor": 0.75})")),
            "DIR/config.json: partial_rotary_factor: 0.75: heads that are rotated in part are not computed here");
}

TEST(HuggingFaceConfigTest, AMixtureOfExpertsIsRefused) {
  const std::string found = refusal(json{{"model_type", "gpt_oss"}, {"num_local_experts", 32}});
  EXPECT_TRUE(found.starts_with("DIR/config.json: model_type: \"gpt_oss\" is not computed here; what is: Llama"))
      << found;
}

TEST(HuggingFaceConfigTest, OldAndNewRotaryKeysSayTheSame) {
  const ModelConfig old = read(file("llama", R"({"rope_theta": 500000.0, "rope_scaling":
      {"type": "yarn", "factor": 4, "original_max_position_embeddings": 512, "beta_fast": null}})"))
                              .model;
  const ModelConfig current = read(file("llama", R"({"rope_parameters":
      {"rope_type": "yarn", "rope_theta": 500000, "factor": 4.0, "original_max_position_embeddings": 512}})"))
                                  .model;
  EXPECT_EQ(difference(old, current), "");
  EXPECT_EQ(old.rope_theta, 500000);
  EXPECT_EQ(old.rope_scaling.type, RopeType::yarn);
  EXPECT_EQ(old.rope_scaling.factor, 4);
  EXPECT_EQ(old.rope_scaling.original_max_position_embeddings, 512);
  EXPECT_EQ(old.rope_scaling.beta_fast, 32);
}

TEST(HuggingFaceConfigTest, AThetaIsThatOfTheSectionOrTheOuterOne) {
  const char* const both = R"({"rope_theta": 8.5, "rope_parameters": {"rope_type": "default", "rope_theta": 8.5}})";
  EXPECT_EQ(read(file("llama", both)).model.rope_theta, 8.5);
  EXPECT_EQ(read(file("llama", R"({"rope_theta": 7.5, "rope_parameters": {}})")).model.rope_theta, 7.5);
  EXPECT_EQ(read(file("llama", R"({"rope_theta": 7.5})")).model.rope_theta, 7.5);
}

TEST(HuggingFaceConfigTest, EveryKeyOfYarnIsRead) {
  const RopeScalingConfig s = read(file("qwen3", R"({"rope_scaling": {"rope_type": "yarn", "factor": 32,
      "original_max_position_embeddings": 4096, "attention_factor": 1.5, "beta_fast": 16, "beta_slow": 2,
      "mscale": 0.7, "mscale_all_dim": 0.9, "truncate": false}})"))
                                  .model.rope_scaling;
  EXPECT_EQ(s.attention_factor, 1.5);
  EXPECT_EQ(s.beta_fast, 16);
  EXPECT_EQ(s.beta_slow, 2);
  EXPECT_EQ(s.mscale, 0.7);
  EXPECT_EQ(s.mscale_all_dim, 0.9);
  EXPECT_FALSE(s.truncate);
}

TEST(HuggingFaceConfigTest, AFactorThatIsNullIsThatOfTheTwoLengths) {
  json content = file("llama", R"({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "yarn",
      "original_max_position_embeddings": 512}})");
  content["rope_scaling"]["factor"] = nullptr;
  EXPECT_EQ(read(content).model.rope_scaling.factor, 8);
}

TEST(HuggingFaceConfigTest, Llama3AndLongRope) {
  const ModelConfig llama3 = read(file("llama", R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3",
      "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}})"))
                                 .model;
  EXPECT_EQ(llama3.rope_scaling.type, RopeType::llama3);
  EXPECT_EQ(llama3.rope_scaling.high_freq_factor, 4);
  const json longrope = file("llama", R"({"head_dim": 4, "max_position_embeddings": 131072,
      "original_max_position_embeddings": 4096, "rope_scaling": {"type": "su", "short_factor": [1.0, 1.25],
      "long_factor": [1, 40.5], "original_max_position_embeddings": 1}})");
  const RopeScalingConfig scaling = read(longrope).model.rope_scaling;
  EXPECT_EQ(scaling.type, RopeType::longrope);
  EXPECT_EQ(scaling.original_max_position_embeddings, 4096);  // the outer one
  EXPECT_EQ(scaling.factor, 32);
  EXPECT_EQ(scaling.short_factor, (std::vector<double>{1, 1.25}));
  EXPECT_EQ(scaling.long_factor, (std::vector<double>{1, 40.5}));
}

TEST(HuggingFaceConfigTest, AMissingTrainedLengthIsNoted) {
  const HuggingFaceConfig config = read(file("llama", R"({"rope_scaling": {"rope_type": "yarn", "factor": 2}})"));
  EXPECT_EQ(config.model.rope_scaling.original_max_position_embeddings, 2048);
  ASSERT_EQ(config.logs.size(), 1U);
  EXPECT_EQ(config.logs[0],
            "DIR/config.json: original_max_position_embeddings is missing, so it is max_position_embeddings = 2048, as "
            "in transformers; if that is the extended length, set "
            "model.rope_scaling.original_max_position_embeddings yourself");
}

TEST(HuggingFaceConfigTest, DropoutIsNotedAndRemarksAreNot) {
  const HuggingFaceConfig config = read(file("gpt2", R"({"resid_pdrop": 0.1, "attn_pdrop": 0.0, "use_cache": true,
      "task_specific_params": {"text-generation": {"do_sample": true}}, "n_ctx": 64, "summary_type": "cls_index",
      "bos_token_id": 50256, "eos_token_id": 50256, "some_flag_nobody_set": false})"));
  ASSERT_EQ(config.logs.size(), 1U);
  EXPECT_EQ(config.logs[0], "DIR/config.json: dropout (resid_pdrop 0.1) has no effect: training here has none");
  EXPECT_EQ(config.ends.begin, 50256);
  EXPECT_EQ(config.ends.ends, std::vector<std::int64_t>{50256});
  EXPECT_EQ(read(file("llama", R"({"eos_token_id": [3, 5]})")).ends.ends, (std::vector<std::int64_t>{3, 5}));
}

/// What gpt2-medium, -large, -xl and distilgpt2 say besides, and the names of other classes for GPT-2's own sizes.
TEST(HuggingFaceConfigTest, OldFilesOfGpt2AreRead) {
  const HuggingFaceConfig config = read(file("gpt2", R"({"n_special": 0, "predict_special_tokens": true,
      "output_past": true, "_num_labels": 1, "n_embd": null, "hidden_size": 48, "n_head": 3,
      "num_attention_heads": 3, "n_layer": null, "num_hidden_layers": 5, "n_positions": null,
      "max_position_embeddings": 99})"));
  EXPECT_EQ(config.model.hidden_size, 48);
  EXPECT_EQ(config.model.num_attention_heads, 3);
  EXPECT_EQ(config.model.num_hidden_layers, 5);
  EXPECT_EQ(config.model.max_position_embeddings, 99);
  EXPECT_EQ(config.model.intermediate_size, 192);
  EXPECT_EQ(refusal(file("gpt2", R"({"n_embd": 64, "hidden_size": 48})")),
            "DIR/config.json: hidden_size: is 48, but n_embd is 64");
}

struct Refused {
  const char* name;
  const char* model_type;
  const char* changes;
  const char* sentence;
};
class RefusedFile : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedFile, InOneSentenceThatNamesTheKey) {
  EXPECT_EQ(refusal(file(GetParam().model_type, GetParam().changes)),
            std::string("DIR/config.json: ") + GetParam().sentence);
}

INSTANTIATE_TEST_SUITE_P(
    Keys, RefusedFile,
    ::testing::Values(
        Refused{"Class", "llama", R"({"architectures": ["LlamaForSequenceClassification"]})",
                R"(architectures: ["LlamaForSequenceClassification"] is not computed here; what is: LlamaForCausalLM, )"
                "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, SmolLM3ForCausalLM, Olmo2ForCausalLM, "
                "Olmo3ForCausalLM, Gemma2ForCausalLM, Phi3ForCausalLM, GraniteForCausalLM, Gemma3ForCausalLM, "
                "GPT2LMHeadModel"},
        Refused{"ModelType", "mixtral", "{}",
                R"(model_type: "mixtral" is not computed here; what is: LlamaForCausalLM, MistralForCausalLM, )"
                "Qwen2ForCausalLM, Qwen3ForCausalLM, SmolLM3ForCausalLM, Olmo2ForCausalLM, Olmo3ForCausalLM, "
                "Gemma2ForCausalLM, Phi3ForCausalLM, GraniteForCausalLM, Gemma3ForCausalLM, GPT2LMHeadModel"},
        Refused{"ClassesThatDiffer", "llama", R"({"architectures": ["MistralForCausalLM"]})",
                "architectures: is MistralForCausalLM, but model_type is llama"},
        Refused{"Quantized", "llama", R"({"quantization_config": {"bits": 4}})",
                R"(quantization_config: is {"bits":4}; quantized weights are not read; take the model's unquantized )"
                "folder"},
        Refused{"Experts", "qwen2", R"({"num_experts": 8})",
                "num_experts: is 8; mixtures of experts are not computed here"},
        Refused{"Softcap", "qwen3", R"({"final_logit_softcapping": 30.0})",
                "final_logit_softcapping: is 30.0; this class has no softcap on logits"},
        Refused{"Activation", "llama", R"({"hidden_act": "gelu"})",
                R"(hidden_act: "gelu" is not computed here; what is: silu, swish)"},
        Refused{"ScaledByLayer", "gpt2", R"({"scale_attn_by_inverse_layer_idx": true})",
                "scale_attn_by_inverse_layer_idx: is true; attention scores are scaled by 1 / sqrt(head_dim) alone"},
        Refused{"Unscaled", "gpt2", R"({"scale_attn_weights": false})",
                "scale_attn_weights: is false; attention scores are scaled by 1 / sqrt(head_dim)"},
        Refused{"CrossAttention", "gpt2", R"({"add_cross_attention": true})",
                "add_cross_attention: is true; cross attention is not computed here"},
        Refused{"Bias", "qwen2", R"({"attention_bias": true})",
                "attention_bias: Qwen2ForCausalLM has no such biases in transformers"},
        Refused{"MlpBias", "qwen3", R"({"mlp_bias": true})",
                "mlp_bias: Qwen3ForCausalLM has no such biases in transformers"},
        Refused{"LlamaWindow", "llama", R"({"sliding_window": 4096})",
                "sliding_window: has no effect in a LlamaForCausalLM; with a window it is a Mistral"},
        Refused{"Dynamic", "llama", R"({"rope_scaling": {"type": "dynamic", "factor": 2}})",
                "rope_scaling.rope_type: dynamic frequencies change with the length of each batch, so they cannot be "
                "trained with; put yarn there, or default, and for a config of your own model.rope_scaling.type ntk"},
        Refused{"Proportional", "llama", R"({"rope_parameters": {"rope_type": "proportional"}})",
                R"(rope_parameters.rope_type: "proportional" is not computed here; what is: default, linear, yarn, )"
                "llama3, longrope"},
        Refused{"Partial", "llama", R"({"partial_rotary_factor": 0.5})",
                "partial_rotary_factor: 0.5: heads that are rotated in part are not computed here"},
        Refused{"PartialInside", "llama", R"({"rope_parameters": {"rope_type": "default",
                                                                  "partial_rotary_factor": 0.25}})",
                "rope_parameters.partial_rotary_factor: 0.25: heads that are rotated in part are not computed here"},
        Refused{"Nested", "qwen3", R"({"rope_parameters": {"full_attention": {"rope_type": "default"},
                                                           "sliding_attention": {"rope_type": "default"}}})",
                "rope_parameters.full_attention: rotary frequencies that differ from layer to layer are not computed "
                "here"},
        Refused{"FactorMissing", "llama", R"({"rope_scaling": {"type": "linear"}})",
                "rope_scaling.factor: is missing, but rope_type linear needs it"},
        Refused{"TwoRopes", "llama", R"({"rope_scaling": {"type": "linear", "factor": 2},
                                         "rope_parameters": {"rope_type": "linear", "factor": 4}})",
                "rope_scaling: says otherwise than rope_parameters; remove the one that is not meant"},
        Refused{"UnknownRopeKey", "llama", R"({"rope_scaling": {"type": "linear", "factor": 2, "mrope_section": [1]}})",
                "rope_scaling.mrope_section: is no rotary key that is known here"},
        Refused{"LongRopeLists", "llama", R"({"max_position_embeddings": 64, "rope_scaling": {"type": "longrope",
             "short_factor": [1], "long_factor": [1, 1, 1, 1, 1, 1], "original_max_position_embeddings": 32}})",
                "model.rope_scaling.short_factor: has 1 numbers, but longrope needs one for each of the model.head_dim "
                "/ 2 = 6 pairs"},
        Refused{"Unknown", "llama", R"({"logit_tilt": 0.5})",
                "logit_tilt: 0.5 is not known here, and may change what the model computes; if it does not, remove it "
                "from the file"},
        Refused{"Text", "llama", R"({"hidden_size": "48"})", R"(hidden_size: is "48", but must be a whole number)"},
        Refused{"Fraction", "llama", R"({"hidden_size": 48.0})", "hidden_size: is 48.0, but must be a whole number"},
        Refused{"Range", "llama", R"({"vocab_size": -3})",
                "model.vocab_size: -3 is out of range; it must be an integer from 2 to 16777216"},
        Refused{"Theta", "llama", R"({"rope_theta": 1.0})",
                "model.rope_theta: 1 is out of range; it must be a number in (1, 1000000000000000]"},
        Refused{"Huge", "gpt2", R"({"n_embd": 9223372036854775804})",
                "model.hidden_size: 9223372036854775804 is out of range; it must be an integer from 1 to 262144"},
        Refused{"Heads", "mistral", R"({"num_key_value_heads": 3})",
                "model.num_key_value_heads: model.num_attention_heads = 4 is not a multiple of it (3); every key/value "
                "head serves the same number of query heads"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(HuggingFaceConfigTest, AFileThatIsNoObjectIsRefused) {
  const auto of = [](const char* text) {
    try {
      parse_hugging_face_config(text, "c.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(of("[1]"), "c.json: is [1], but must be an object");
  EXPECT_EQ(of("{}"), "c.json: model_type: is missing, and so is architectures: is it a model's file?");
  EXPECT_TRUE(of("{\"model_type\": ").starts_with("c.json: is no JSON: "));
}

TEST(HuggingFaceConfigTest, WhatIsWrittenIsReadBack) {
  const std::vector<const char*> ropes{
      R"({})",
      R"({"rope_scaling": {"type": "linear", "factor": 2.5}})",
      R"({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 512, "beta_fast": 16,
          "beta_slow": 2, "mscale": 0.7, "mscale_all_dim": 0.9, "truncate": false}})",
      R"({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 512,
          "attention_factor": 1.25}})",
      R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
          "original_max_position_embeddings": 64}})",
      R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1.5], "long_factor": [2, 3.75], "factor": 2,
          "original_max_position_embeddings": 64}})"};
  for (const std::string& type : all_types) {
    for (const char* const rope : ropes) {
      for (const bool tied : {false, true}) {
        json content = file(type, type == "gpt2" ? "{}" : rope);
        if (type != "gpt2") content.update({{"head_dim", 4}, {"rope_theta", 12345.5}});
        content["tie_word_embeddings"] = tied;
        if ((type == "olmo3" || type == "gemma3_text") && content.contains("rope_scaling")) {
          content["rope_scaling"].erase("truncate");  // refused there
        }
        const ModelConfig model = read(content).model;
        const std::string text =
            write_hugging_face_config(model, {.dtype = "bfloat16", .context_length = 0, .ends = {1, {2, 3}}});
        const HuggingFaceConfig again = parse_hugging_face_config(text, "again");
        EXPECT_EQ(difference(model, again.model), "") << text;
        EXPECT_EQ(again.logs, std::vector<std::string>{});
        EXPECT_EQ(again.ends.begin, 1);
        EXPECT_EQ(again.ends.ends, (std::vector<std::int64_t>{2, 3}));
        EXPECT_EQ(json::parse(text)["torch_dtype"], "bfloat16");
        EXPECT_EQ(json::parse(text)["dtype"], "bfloat16");
      }
    }
  }
}

TEST(HuggingFaceConfigTest, WindowsAndBiasesAreReadBack) {
  for (const auto& [type, changes] : std::vector<std::pair<std::string, const char*>>{
           {"llama", R"({"attention_bias": true})"},
           {"llama", R"({"mlp_bias": true})"},
           {"qwen3", R"({"attention_bias": true})"},
           {"mistral", R"({"sliding_window": 7})"},
           {"qwen2", R"({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0})"},
           {"qwen3", R"({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0})"}}) {
    const ModelConfig model = read(file(type, changes)).model;
    EXPECT_EQ(difference(model, parse_hugging_face_config(write_hugging_face_config(model, {}), "again").model), "");
  }
}

TEST(HuggingFaceConfigTest, NtkIsWrittenAsItsTheta) {
  ModelConfig model = read(file("llama", R"({"rope_theta": 10000, "head_dim": 16})")).model;
  model.rope_scaling.type = RopeType::ntk;
  model.rope_scaling.factor = 4;
  const ModelConfig again = parse_hugging_face_config(write_hugging_face_config(model, {}), "again").model;
  EXPECT_EQ(again.rope_scaling.type, RopeType::none);
  EXPECT_NEAR(again.rope_theta / 48760.54616817902, 1, 1e-14);  // 10000 * 4^(16 / 14)
}

TEST(HuggingFaceConfigTest, ALlamaWithAWindowIsWrittenAsAMistral) {
  ModelConfig model = read(file("llama")).model;
  model.sliding_window = 9;
  const json text = json::parse(write_hugging_face_config(model, {}));
  EXPECT_EQ(text["architectures"][0], "MistralForCausalLM");
  EXPECT_EQ(text["model_type"], "mistral");
  EXPECT_EQ(text["sliding_window"], 9);
}

/// A file that was read, a change of the model, and why it is not written.
struct Unwritten {
  const char* name;
  const char* model_type;
  const char* changes;
  std::function<void(ModelConfig&)> change;
  const char* sentence;
};
class UnwrittenModel : public ::testing::TestWithParam<Unwritten> {};

TEST_P(UnwrittenModel, IsRefusedInASentenceThatNamesTheKey) {
  ModelConfig model = read(file(GetParam().model_type, GetParam().changes)).model;
  EXPECT_NO_THROW(write_hugging_face_config(model, {}));
  GetParam().change(model);
  try {
    FAIL() << write_hugging_face_config(model, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.what(), std::string("a model of architecture ") + GetParam().model_type +
                                " cannot be written for transformers: " + GetParam().sentence);
  }
}

const auto windowed = [](ModelConfig& model) { model.sliding_window = 4; };

INSTANTIATE_TEST_SUITE_P(
    Models, UnwrittenModel,
    ::testing::Values(
        Unwritten{"Granite", "granite", R"({"logits_scaling": 8})", windowed,
                  "GraniteForCausalLM would have model.sliding_window = 0 instead of 4"},
        Unwritten{"Olmo2", "olmo2", "{}", windowed,
                  "Olmo2ForCausalLM would have model.sliding_window = 0 instead of 4"},
        Unwritten{"Gpt2", "gpt2", "{}", windowed, "GPT2LMHeadModel would have model.sliding_window = 0 instead of 4"},
        Unwritten{"LlamaWithBiases", "llama", R"({"mlp_bias": true})", windowed,
                  "MistralForCausalLM would have model.mlp_bias = false instead of true"},
        Unwritten{"MixedMistral", "mistral", "{}",
                  [](ModelConfig& model) {
                    model.layer_types = {LayerType::full_attention, LayerType::sliding_attention};
                  },
                  "MistralForCausalLM would have model.layer_types = [] instead of [full_attention, "
                  "sliding_attention]"},
        Unwritten{"Sinks", "llama", "{}", [](ModelConfig& model) { model.attention_sinks = true; },
                  "LlamaForCausalLM would have model.attention_sinks = false instead of true"},
        Unwritten{"Softcaps", "llama", "{}",
                  [](ModelConfig& model) { model.attention_softcap = model.final_softcap = 3; },
                  "LlamaForCausalLM would have model.attention_softcap = 0 instead of 3, model.final_softcap = 0 "
                  "instead of 3"},
        Unwritten{"Factors", "llama", "{}", [](ModelConfig& model) { model.residual_multiplier = 0.5; },
                  "LlamaForCausalLM would have model.residual_multiplier = 1 instead of 0.5"},
        Unwritten{"Phi3Linear", "phi3", "{}",
                  [](ModelConfig& model) {
                    model.rope_scaling.type = RopeType::linear;
                    model.rope_scaling.factor = 2;
                  },
                  "Phi3ForCausalLM has longrope alone, but model.rope_scaling.type is linear"},
        // Phi3Config of transformers 5.24 wants lists for hidden_size / num_attention_heads, and refuses such a file.
        Unwritten{"Phi3Heads", "phi3", R"({"head_dim": 4})",
                  [](ModelConfig& model) {
                    model.rope_scaling.type = RopeType::longrope;
                    model.rope_scaling.factor = 2;
                    model.rope_scaling.original_max_position_embeddings = 64;
                    model.rope_scaling.short_factor = model.rope_scaling.long_factor = {1, 2};
                  },
                  "Phi3ForCausalLM has longrope for heads of model.hidden_size / model.num_attention_heads = 12 "
                  "elements alone, but model.head_dim is 4"},
        Unwritten{"FractionOfAScalar", "gemma2", "{}", [](ModelConfig& model) { model.query_pre_attn_scalar = 5.5; },
                  "Gemma2ForCausalLM takes whole numbers for model.query_pre_attn_scalar, which is 5.5"},
        Unwritten{"Untruncated", "olmo3", "{}",
                  [](ModelConfig& model) {
                    model.rope_scaling = {.type = RopeType::yarn,
                                          .factor = 2,
                                          .original_max_position_embeddings = 64,
                                          .truncate = false,
                                          .short_factor = {},
                                          .long_factor = {}};
                  },
                  "Olmo3ForCausalLM computes yarn as if model.rope_scaling.truncate were true, whatever its file says"},
        Unwritten{"Heads", "llama", R"({"head_dim": 4})", [](ModelConfig& model) { model.hidden_size = 50; },
                  "LlamaForCausalLM wants a model.hidden_size that is a multiple of model.num_attention_heads, not 50 "
                  "and 4"},
        Unwritten{"InitializerRange", "llama", "{}", [](ModelConfig& model) { model.initializer_range = 1.5; },
                  "LlamaForCausalLM takes a model.initializer_range of at most 1, not 1.5"},
        Unwritten{"WhatIsNotReadBack", "llama", "{}",
                  [](ModelConfig& model) {
                    model.rope_theta = 1e15;
                    model.rope_scaling.type = RopeType::ntk;
                    model.rope_scaling.factor = 8;
                  },
                  "config.json: model.rope_theta: 1.2125732532083184e+16 is out of range; it must be a number in (1, "
                  "1000000000000000]"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace ringtrain::testing
