// config.json of a Hugging Face folder: what each class takes it for, old and new rotary keys, what is refused and in
// which words, and that what is written is read back.
#include "train/models/hugging_face_config.h"
#include "framework/config/config.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/config/config_schema.h"
#include "framework/config/read_config.h"
#include "layers/model_parameters.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "train/models/hugging_face_families.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

/// A file of a class, small enough to be read by eye, with other keys or more.
json file(const std::string& model_type, const char* keys = "{}") {
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
  base.update(json::parse(keys));
  return base;
}

HuggingFaceConfig read(const json& content) {
  return parse_hugging_face_config(content.dump(), "DIR/config.json");
}

/// The keys in which a model differs from another, and what they are: "rope_theta 500000, sliding_window 0".
std::string difference(const ModelConfig& from, const ModelConfig& to) {
  Config one, other;
  one.model = from;
  other.model = to;
  std::string text;
  for (const ConfigDifference& d : differences(one, other)) {
    text += (text.empty() ? "" : ", ") + d.key.substr(std::string("model.").size()) + " " + d.after;
  }
  return text;
}

/// Keys of a class's file, and in what the model is then another one.
struct Read {
  const char *model_type, *keys, *difference;
  const char* log = "";
};

TEST(HuggingFaceConfigTest, KeysMeanWhatTheClassMeansByThem) {
  for (const auto& [type, keys, changed, log] : std::vector<Read>{

           {"mistral", R"({"sliding_window": 7})", "sliding_window 7"},
           {"mistral", R"({"sliding_window": null})", "sliding_window 0"},
           {"qwen2", R"({"num_key_value_heads": null})", "num_key_value_heads 4"},
           {"qwen2", R"({"head_dim": 6})", "head_dim 6"},
           {"qwen3", R"({"head_dim": 6})", "head_dim 6"},
           {"gpt2", R"({"n_inner": null})", ""},
           {"gpt2", R"({"n_inner": 191})", "intermediate_size 191"},
           // The window of a Qwen is in the layers that the file names.
           {"qwen2", R"({"sliding_window": 9, "max_window_layers": 0})", ""},
           {"qwen2", R"({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0})",
            "sliding_window 9"},
           {"qwen2", R"({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1})",
            "sliding_window 9, layer_types [full_attention, sliding_attention]"},
           {"qwen2", R"({"use_sliding_window": true})", ""},
           {"qwen3", R"({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0,
                         "layer_types": ["full_attention", "full_attention"]})",
            ""},
           {"qwen3", R"({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0,
                         "layer_types": ["sliding_attention", "full_attention"]})",
            "sliding_window 9, layer_types [sliding_attention, full_attention]"},
           {"smollm3", R"({"no_rope_layers": [0, 1]})", "layer_positions [none, rope]"},
           // As published: layers with a window are not scaled.
           {"olmo3",
            R"({"rope_theta": 500000, "num_hidden_layers": 4, "rope_scaling": {"rope_type": "yarn", "factor": 8.0,
                         "original_max_position_embeddings": 8192}})",
            "num_hidden_layers 4, rope_scaling.type yarn, rope_scaling.factor 8, "
            "rope_scaling.original_max_position_embeddings 8192, layer_types [sliding_attention, sliding_attention, "
            "sliding_attention, full_attention], sliding_rope_theta 500000"},
           {"olmo3", R"({"rope_theta": 1000000, "num_hidden_layers": 4, "rope_scaling": {"rope_type": "yarn",
                         "factor": 8.0, "original_max_position_embeddings": 8192}})",
            "num_hidden_layers 4, rope_theta 1000000, rope_scaling.type yarn, rope_scaling.factor 8, "
            "rope_scaling.original_max_position_embeddings 8192, layer_types [sliding_attention, sliding_attention, "
            "sliding_attention, full_attention], sliding_rope_theta 1000000",
            "rope_theta = 1000000 is the base of all layers, as in transformers 4; transformers 5 gives those with a "
            "window 500000"},
           {"olmo3", R"({"rope_theta": 10000.0, "num_hidden_layers": 4})",
            "num_hidden_layers 4, rope_theta 10000, layer_types [sliding_attention, sliding_attention, "
            "sliding_attention, full_attention]",
            "rope_theta = 10000 is the base of all layers, as in transformers 4; transformers 5 gives those with a "
            "window 500000"},
           {"gemma3_text", R"({"rope_local_base_freq": 2000, "rope_theta": 3000, "sliding_window": 512,
                               "sliding_window_pattern": 2, "cache_implementation": "hybrid",
                               "query_pre_attn_scalar": 168, "attn_logit_softcapping": null,
                               "rope_scaling": {"factor": 8.0, "rope_type": "linear"}})",
            "rope_theta 3000, rope_scaling.type linear, rope_scaling.factor 8, sliding_window 512, layer_types "
            "[sliding_attention, full_attention], sliding_rope_theta 2000, query_pre_attn_scalar 168"},
           {"gemma2", R"({"attn_logit_softcapping": null, "final_logit_softcapping": null})",
            "attention_softcap 0, final_softcap 0"},
           {"granite", R"({"attention_multiplier": 0.0078125, "embedding_multiplier": 12, "residual_multiplier": 0.22,
                           "logits_scaling": 16})",
            "query_pre_attn_scalar 16384, embedding_multiplier 12, residual_multiplier 0.22, logits_scaling 16"},
           // A Phi-3's longrope is called yarn in its files of 2024.
           {"phi3", R"({"head_dim": 4, "max_position_embeddings": 131072, "sliding_window": 2047, "rope_scaling":
                        {"type": "yarn", "short_factor": [1.0, 1.25], "long_factor": [1, 40.5]}})",
            "head_dim 4, rope_scaling.type longrope, rope_scaling.factor 32, "
            "rope_scaling.original_max_position_embeddings 4096, rope_scaling.short_factor [1, 1.25], "
            "rope_scaling.long_factor [1, 40.5], max_position_embeddings 131072, sliding_window 2047"},
           // Old and new rotary keys, and the base of the section or the outer one.
           {"llama", R"({"rope_theta": 500000.0, "rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": null,
                         "original_max_position_embeddings": 512}})",
            "rope_theta 500000, rope_scaling.type yarn, rope_scaling.factor 4, "
            "rope_scaling.original_max_position_embeddings 512"},
           {"llama", R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 500000, "factor": 4.0,
                         "original_max_position_embeddings": 512}})",
            "rope_theta 500000, rope_scaling.type yarn, rope_scaling.factor 4, "
            "rope_scaling.original_max_position_embeddings 512"},
           {"llama", R"({"rope_theta": 8.5, "rope_parameters": {"rope_type": "default", "rope_theta": 8.5}})",
            "rope_theta 8.5"},
           {"llama", R"({"rope_theta": 7.5, "rope_parameters": {}})", "rope_theta 7.5"},
           {"llama", R"({"rope_theta": 7.5})", "rope_theta 7.5"},
           {"qwen3", R"({"rope_scaling": {"rope_type": "yarn", "factor": 32, "original_max_position_embeddings": 4096,
                         "attention_factor": 1.5, "beta_fast": 16, "beta_slow": 2, "mscale": 0.7, "mscale_all_dim": 0.9,
                         "truncate": false}})",
            "rope_scaling.type yarn, rope_scaling.factor 32, rope_scaling.original_max_position_embeddings 4096, "
            "rope_scaling.attention_factor 1.5, rope_scaling.beta_fast 16, rope_scaling.beta_slow 2, "
            "rope_scaling.mscale 0.7, rope_scaling.mscale_all_dim 0.9, rope_scaling.truncate false"},
           {"llama", R"({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "yarn", "factor": null,
                         "original_max_position_embeddings": 512}})",
            "rope_scaling.type yarn, rope_scaling.factor 8, rope_scaling.original_max_position_embeddings 512, "
            "max_position_embeddings 4096"},
           {"llama", R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 2,
                         "high_freq_factor": 5, "original_max_position_embeddings": 8192}})",
            "rope_theta 500000, rope_scaling.type llama3, rope_scaling.factor 8, "
            "rope_scaling.original_max_position_embeddings 8192, rope_scaling.low_freq_factor 2, "
            "rope_scaling.high_freq_factor 5"},
           {"llama", R"({"head_dim": 4, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
                         "rope_scaling": {"type": "su", "short_factor": [1.0, 1.25], "long_factor": [1, 40.5],
                         "original_max_position_embeddings": 1}})",
            "head_dim 4, rope_scaling.type longrope, rope_scaling.factor 32, "
            "rope_scaling.original_max_position_embeddings 4096, rope_scaling.short_factor [1, 1.25], "
            "rope_scaling.long_factor [1, 40.5], max_position_embeddings 131072",
            "original_max_position_embeddings = 1 within the rotary keys has no effect, as in transformers; the "
            "trained length is 4096, given outside of them"},
           {"llama", R"({"rope_scaling": {"rope_type": "yarn", "factor": 2}})",
            "rope_scaling.type yarn, rope_scaling.factor 2, rope_scaling.original_max_position_embeddings 2048",
            "original_max_position_embeddings is missing, so it is max_position_embeddings = 2048, as in transformers; "
            "if that is the extended length, set model.rope_scaling.original_max_position_embeddings yourself"},
           {"gpt2", R"({"resid_pdrop": 0.1, "attn_pdrop": 0.0})", "",
            "dropout (resid_pdrop 0.1) has no effect: training here has none"},
           // What gpt2-medium, -large, -xl and distilgpt2 say besides, and the names of other classes for its own
           // sizes.
           {"gpt2", R"({"n_special": 0, "predict_special_tokens": true, "output_past": true, "_num_labels": 1,
                        "n_embd": null, "hidden_size": 36, "n_head": 3, "num_attention_heads": 3, "n_layer": null,
                        "num_hidden_layers": 5, "n_positions": null, "max_position_embeddings": 99})",
            "hidden_size 36, num_hidden_layers 5, num_attention_heads 3, num_key_value_heads 3, intermediate_size 144, "
            "max_position_embeddings 99"}}) {
    SCOPED_TRACE(std::string(type) + " " + keys);
    const HuggingFaceConfig config = read(file(type, keys));
    EXPECT_EQ(difference(read(file(type)).model, config.model), changed);
    EXPECT_EQ(fmt::format("{}", fmt::join(config.logs, "; ")), *log ? std::string("DIR/config.json: ") + log : "");
  }
}

/// Keys as published, not as transformers 5 saves them, with small sizes.
TEST(HuggingFaceConfigTest, FilesAreReadAsTheyWerePublished) {
  const json published = json::parse(std::ifstream(source_folder() + "/tests/golden/published_keys.json"));
  ASSERT_EQ(published.size(), 8U);
  for (const auto& [name, known] : published.items()) {
    const json& keys = known.at("keys");
    const HuggingFaceConfig config = read(file(keys.at("model_type"), keys.dump().c_str()));
    EXPECT_EQ(difference(read(file(keys.at("model_type"))).model, config.model), known.at("difference")) << name;
    EXPECT_EQ(fmt::format("{}", fmt::join(config.logs, "; ")), known.at("log")) << name;
  }
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

TEST(HuggingFaceConfigTest, RemarksAreNoLogsAndEndsAreRead) {
  const HuggingFaceConfig config = read(file("gpt2", R"({"attn_pdrop": 0.0, "use_cache": true, "n_ctx": 64,
      "task_specific_params": {"text-generation": {"do_sample": true}}, "summary_type": "cls_index",
      "bos_token_id": 50256, "eos_token_id": 50256, "some_flag_nobody_set": false})"));
  EXPECT_TRUE(config.logs.empty());
  EXPECT_EQ(config.ends, (EndIds{50256, {50256}}));
  EXPECT_EQ(read(file("llama", R"({"eos_token_id": [3, 5]})")).ends.ends, (std::vector<std::int64_t>{3, 5}));
}

/// A file of transformers 4 has one base, which is that of all layers there; transformers 5.23 gives it to those
/// without a window alone. What is written has a section for each kind, and is the same model in both.
TEST(HuggingFaceConfigTest, TheOneBaseOfAnOlmo3IsWrittenForEachKindOfLayer) {
  const ModelConfig model = read(file("olmo3", R"({"rope_theta": 10000.0, "num_hidden_layers": 4})")).model;
  const json written = json::parse(write_hugging_face_config(model, {}));
  EXPECT_EQ(written["rope_theta"], 10000);
  for (const char* const kind : {"full_attention", "sliding_attention"}) {
    EXPECT_EQ(written["rope_parameters"][kind]["rope_theta"], 10000) << kind;
  }
}

/// Keys of a class's file, and the sentence in which they are refused.
struct Refused {
  const char *model_type, *keys, *sentence;
};

TEST(HuggingFaceConfigTest, WhatIsNotComputedIsRefusedInOneSentenceThatNamesTheKey) {
  for (const auto& [type, keys, sentence] : std::vector<Refused>{
           {"llama", R"({"architectures": ["LlamaForSequenceClassification"]})",
            R"(architectures: ["LlamaForSequenceClassification"] is not computed here; what is: LlamaForCausalLM, )"
            "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, SmolLM3ForCausalLM, Olmo2ForCausalLM, "
            "Olmo3ForCausalLM, Gemma2ForCausalLM, Phi3ForCausalLM, GraniteForCausalLM, Gemma3ForCausalLM, "
            "GPT2LMHeadModel"},
           {"mixtral", R"({"num_local_experts": 32})",
            R"(model_type: "mixtral" is not computed here; what is: LlamaForCausalLM, MistralForCausalLM, )"
            "Qwen2ForCausalLM, Qwen3ForCausalLM, SmolLM3ForCausalLM, Olmo2ForCausalLM, Olmo3ForCausalLM, "
            "Gemma2ForCausalLM, Phi3ForCausalLM, GraniteForCausalLM, Gemma3ForCausalLM, GPT2LMHeadModel"},
           {"llama", R"({"architectures": ["MistralForCausalLM"]})",
            "architectures: is MistralForCausalLM, but model_type is llama"},
           {"llama", R"({"quantization_config": {"bits": 4}})",
            R"(quantization_config: is {"bits":4}; quantized weights are not read; take the model's unquantized )"
            "folder"},
           {"qwen2", R"({"num_experts": 8})", "num_experts: is 8; mixtures of experts are not computed here"},
           {"qwen3", R"({"final_logit_softcapping": 30.0})",
            "final_logit_softcapping: is 30.0; this class has no softcap on logits"},
           {"llama", R"({"hidden_act": "gelu"})", R"(hidden_act: "gelu" is not computed here; what is: silu, swish)"},
           {"gpt2", R"({"scale_attn_by_inverse_layer_idx": true})",
            "scale_attn_by_inverse_layer_idx: is true; attention scores are scaled by 1 / sqrt(head_dim) alone"},
           {"gpt2", R"({"scale_attn_weights": false})",
            "scale_attn_weights: is false; attention scores are scaled by 1 / sqrt(head_dim)"},
           {"gpt2", R"({"add_cross_attention": true})",
            "add_cross_attention: is true; cross attention is not computed here"},
           {"qwen2", R"({"attention_bias": true})",
            "attention_bias: Qwen2ForCausalLM has no such biases in transformers"},
           {"qwen3", R"({"mlp_bias": true})", "mlp_bias: Qwen3ForCausalLM has no such biases in transformers"},
           {"llama", R"({"sliding_window": 4096})",
            "sliding_window: has no effect in a LlamaForCausalLM; with a window it is a Mistral"},
           {"llama", R"({"rope_scaling": {"type": "dynamic", "factor": 2}})",
            "rope_scaling.rope_type: dynamic frequencies change with the length of each batch, so they cannot be "
            "trained with; put yarn there, or default, and for a config of your own model.rope_scaling.type ntk"},
           {"llama", R"({"rope_parameters": {"rope_type": "proportional"}})",
            R"(rope_parameters.rope_type: "proportional" is not computed here; what is: default, linear, yarn, )"
            "llama3, longrope"},
           {"llama", R"({"partial_rotary_factor": 0.5})",
            "partial_rotary_factor: 0.5: heads that are rotated in part are not computed here"},
           {"llama", R"({"rope_parameters": {"rope_type": "default",
                                                                  "partial_rotary_factor": 0.25}})",
            "rope_parameters.partial_rotary_factor: 0.25: heads that are rotated in part are not computed here"},
           {"qwen3", R"({"rope_parameters": {"full_attention": {"rope_type": "default"},
                                                           "sliding_attention": {"rope_type": "default"}}})",
            "rope_parameters.full_attention: rotary frequencies that differ from layer to layer are not computed "
            "here"},
           {"llama", R"({"rope_scaling": {"type": "linear"}})",
            "rope_scaling.factor: is missing, but rope_type linear needs it"},
           {"llama", R"({"rope_scaling": {"type": "linear", "factor": 2},
                                         "rope_parameters": {"rope_type": "linear", "factor": 4}})",
            "rope_scaling: says otherwise than rope_parameters; remove the one that is not meant"},
           {"llama", R"({"rope_scaling": {"type": "linear", "factor": 2, "mrope_section": [1]}})",
            "rope_scaling.mrope_section: is no rotary key that is known here"},
           {"llama", R"({"max_position_embeddings": 64, "rope_scaling": {"type": "longrope",
             "short_factor": [1], "long_factor": [1, 1, 1, 1, 1, 1], "original_max_position_embeddings": 32}})",
            "model.rope_scaling.short_factor: has 1 numbers, but longrope needs one for each of the model.head_dim "
            "/ 2 = 6 pairs"},
           {"llama", R"({"logit_tilt": 0.5})",
            "logit_tilt: 0.5 is not known here, and may change what the model computes; if it does not, remove it "
            "from the file"},
           {"llama", R"({"hidden_size": "48"})", R"(hidden_size: is "48", but must be a whole number)"},
           {"llama", R"({"hidden_size": 48.0})", "hidden_size: is 48.0, but must be a whole number"},
           {"llama", R"({"vocab_size": -3})",
            "model.vocab_size: -3 is out of range; it must be an integer from 2 to 16777216"},
           {"llama", R"({"rope_theta": 1.0})",
            "model.rope_theta: 1 is out of range; it must be a number in (1, 1000000000000000]"},
           {"gpt2", R"({"n_embd": 9223372036854775804})",
            "model.hidden_size: 9223372036854775804 is out of range; it must be an integer from 1 to 262144"},
           {"mistral", R"({"num_key_value_heads": 3})",
            "model.num_key_value_heads: model.num_attention_heads = 4 is not a multiple of it (3); every key/value "
            "head serves the same number of query heads"},
           {"gpt2", R"({"n_embd": 64, "hidden_size": 48})", "hidden_size: is 48, but n_embd is 64"},
           {"mistral", R"({"num_hidden_layers": null})", "num_hidden_layers: is null, but must be a whole number"},
           {"qwen3", R"({"layer_types": ["sliding_attention"]})",
            "layer_types: must name full_attention or sliding_attention for each of 2 layers"},
           {"qwen3", R"({"layer_types": ["sliding_attention", "chunked_attention"]})",
            "layer_types: must name full_attention or sliding_attention for each of 2 layers"},
           {"smollm3", R"({"no_rope_layers": [0]})", "no_rope_layers: has 1 entries for 2 layers"},
           {"gemma3_text", R"({"attn_logit_softcapping": 50.0})",
            "attn_logit_softcapping: is 50.0; this class has no softcap on attention scores"},
           {"gemma3_text", R"({"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2}},
                               "num_hidden_layers": 6})",
            "rope_parameters.sliding_attention: scaled positions of layers with a window, unlike those of the others, "
            "are not computed here"},
           {"olmo3", R"({"num_hidden_layers": 4, "rope_scaling": {"rope_type": "yarn", "factor": 8.0,
                         "original_max_position_embeddings": 8192, "truncate": false}})",
            "truncate: transformers computes this architecture with yarn's truncate as true, whatever its file says"},
           {"phi3", R"({"auto_map": {"AutoModelForCausalLM": "modeling_phi3.Phi3SmallForCausalLM"}})",
            R"(auto_map: is {"AutoModelForCausalLM":"modeling_phi3.Phi3SmallForCausalLM"}; the folder's own Python )"
            "code cannot be run; take a model of one of the known classes"},
           {"llama", R"({"auto_map": {"AutoConfig": "configuration_llama.LlamaConfig"}})",
            R"(auto_map: is {"AutoConfig":"configuration_llama.LlamaConfig"}; the folder's own Python code cannot be )"
            "run; take a model of one of the known classes"},
           {"gemma2", R"({"hidden_act": "gelu"})",
            R"(hidden_act: is "gelu", but hidden_activation, which the class reads, is "gelu_pytorch_tanh")"},
           {"gemma2", R"({"sliding_window_size": 512})",
            "sliding_window_size: is 512, but sliding_window, which the class reads, is 4096"},
           {"llama", R"({"max_position_embeddings": 0})", "max_position_embeddings: is 0, but must be at least 1"},
           {"gpt2", R"({"n_positions": 0})", "n_positions: is 0, but must be at least 1"},
           {"gemma2", R"({"attn_logit_softcapping": 0})", "attn_logit_softcapping: must be above 0, or null"},
           {"granite", R"({"residual_multiplier": 0})", "residual_multiplier: must be above 0"},
           {"llama", R"({"residual_multiplier": 0.5})",
            "residual_multiplier: is 0.5; this class does not scale what is added to the residual stream"},
           {"phi3", R"({"rope_scaling": {"type": "linear", "factor": 2}})",
            "rope_scaling.rope_type: \"linear\" is nothing that a Phi3ForCausalLM has: default, longrope"}}) {
    const json content = file(type, keys);
    EXPECT_EQ(error_of(ExitCode::checkpoint, [&] { read(content); }), std::string("DIR/config.json: ") + sentence);
  }
}

TEST(HuggingFaceConfigTest, AFileThatIsNoObjectIsRefused) {
  const auto of = [](const char* text) {
    return error_of(ExitCode::checkpoint, [&] { parse_hugging_face_config(text, "c.json"); });
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
  for (const Family& family : families) {
    for (const char* const rope : ropes) {
      for (const bool tied : {false, true}) {
        json content = file(name_of(family.architecture), family.rotary && family.trained_length == 0 ? rope : "{}");
        if (family.rotary) content.update({{"head_dim", 4}, {"rope_theta", 12345.5}});
        content["tie_word_embeddings"] = tied;
        if (family.sliding_theta > 0 && content.contains("rope_scaling")) {
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

/// A file that was read, keys of the model that are then set, and why it is not written.
struct Unwritten {
  const char *model_type, *keys;
  std::vector<std::pair<const char*, const char*>> settings;
  const char* sentence;
};

void set(ModelConfig& model, const std::string& key, const std::string& value) {
  Config config;
  config.model = model;
  const auto found = std::ranges::find(config_keys(), "model." + key, &ConfigKey::path);
  const YamlValue line = parse_yaml("value: " + value);
  found->read(config, line.entries.at(0).value, [&](int, const std::string& problem) { FAIL() << key << problem; });
  model = config.model;
}

TEST(HuggingFaceConfigTest, WhatAClassCannotHoldIsRefusedInASentenceThatNamesTheKey) {
  const char* const longrope_heads =
      "Phi3ForCausalLM has longrope for heads of model.hidden_size / model.num_attention_heads = 12 elements alone, "
      "but "
      "model.head_dim is 4";
  for (const auto& [type, keys, settings, sentence] : std::vector<Unwritten>{
           {"granite",
            R"({"logits_scaling": 8})",
            {{"sliding_window", "4"}},
            "GraniteForCausalLM would have model.sliding_window = 0 instead of 4"},
           {"olmo2",
            "{}",
            {{"sliding_window", "4"}},
            "Olmo2ForCausalLM would have model.sliding_window = 0 instead of 4"},
           {"gpt2",
            "{}",
            {{"sliding_window", "4"}},
            "GPT2LMHeadModel would have model.sliding_window = 0 instead of 4"},
           {"llama",
            R"({"mlp_bias": true})",
            {{"sliding_window", "4"}},
            "MistralForCausalLM would have model.mlp_bias = false instead of true"},
           {"mistral",
            "{}",
            {{"layer_types", "[full_attention, sliding_attention]"}},
            "MistralForCausalLM would have model.layer_types = [] instead of [full_attention, sliding_attention]"},
           {"llama",
            "{}",
            {{"attention_sinks", "true"}},
            "LlamaForCausalLM would have model.attention_sinks = false instead of true"},
           {"llama",
            "{}",
            {{"attention_softcap", "3"}, {"final_softcap", "3"}},
            "LlamaForCausalLM would have model.attention_softcap = 0 instead of 3, model.final_softcap = 0 instead of "
            "3"},
           {"llama",
            "{}",
            {{"residual_multiplier", "0.5"}},
            "LlamaForCausalLM would have model.residual_multiplier = 1 instead of 0.5"},
           {"phi3",
            "{}",
            {{"rope_scaling.type", "linear"}, {"rope_scaling.factor", "2"}},
            "Phi3ForCausalLM has longrope alone, but model.rope_scaling.type is linear"},
           // Phi3Config of transformers 5.24 wants lists for hidden_size / num_attention_heads, and refuses such a
           // file.
           {"phi3",
            R"({"head_dim": 4})",
            {{"rope_scaling.type", "longrope"},
             {"rope_scaling.factor", "2"},
             {"rope_scaling.original_max_position_embeddings", "64"},
             {"rope_scaling.short_factor", "[1, 2]"},
             {"rope_scaling.long_factor", "[1, 2]"}},
            longrope_heads},
           {"gemma2",
            "{}",
            {{"query_pre_attn_scalar", "5.5"}},
            "Gemma2ForCausalLM takes whole numbers for model.query_pre_attn_scalar, which is 5.5"},
           {"olmo3",
            "{}",
            {{"rope_scaling.type", "yarn"},
             {"rope_scaling.factor", "2"},
             {"rope_scaling.original_max_position_embeddings", "64"},
             {"rope_scaling.truncate", "false"}},
            "Olmo3ForCausalLM computes yarn as if model.rope_scaling.truncate were true, whatever its file says"},
           {"llama",
            R"({"head_dim": 4})",
            {{"hidden_size", "50"}},
            "LlamaForCausalLM wants a model.hidden_size that is a multiple of model.num_attention_heads, not 50 and 4"},
           {"llama",
            "{}",
            {{"initializer_range", "1.5"}},
            "LlamaForCausalLM takes a model.initializer_range of at most 1, not 1.5"},
           {"llama",
            "{}",
            {{"rope_theta", "1e15"}, {"rope_scaling.type", "ntk"}, {"rope_scaling.factor", "8"}},
            "config.json: model.rope_theta: 1.2125732532083184e+16 is out of range; it must be a number in (1, "
            "1000000000000000]"}}) {
    SCOPED_TRACE(sentence);
    ModelConfig model = read(file(type, keys)).model;
    EXPECT_NO_THROW(write_hugging_face_config(model, {}));
    for (const auto& [key, value] : settings) set(model, key, value);
    EXPECT_EQ(error_of(ExitCode::usage, [&] { write_hugging_face_config(model, {}); }),
              fmt::format("a model of architecture {} cannot be written for transformers: {}", type, sentence));
  }
}

}  // namespace
}  // namespace ringtrain::testing
