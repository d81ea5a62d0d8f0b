// Reads config.json. What a key says becomes a model key; what no layer computes is refused; what changes nothing here
// stands in a list.
#include "train/models/hugging_face_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "framework/config/config_check.h"
#include "framework/config/config_problems.h"
#include "framework/config/config_schema.h"
#include "framework/config/yaml_tree.h"
#include "framework/error.h"
#include "framework/storage/files.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/strict_json.h"
#include "layers/check_model.h"
#include "train/models/hugging_face_rope.h"
#include "train/models/json_keys.h"

namespace ringtrain {

namespace {

constexpr std::int64_t largest_file = 1 << 20;

/// A class of transformers, and what it takes for keys that a file has not.
struct ModelClass {
  Architecture architecture;  // its name is the class's model_type
  const char* name;
  std::int64_t vocab_size, hidden_size, intermediate_size, layers, heads;
  std::int64_t key_value_heads;  // 0: as many as heads
  std::int64_t head_dim;         // 0: hidden_size / heads
  std::int64_t max_position_embeddings;
};
constexpr std::array<ModelClass, 5> classes{{
    {Architecture::llama, "LlamaForCausalLM", 32000, 4096, 11008, 32, 32, 0, 0, 2048},
    {Architecture::mistral, "MistralForCausalLM", 32000, 4096, 14336, 32, 32, 8, 0, 131072},
    {Architecture::qwen2, "Qwen2ForCausalLM", 151936, 4096, 22016, 32, 32, 32, 0, 32768},
    {Architecture::qwen3, "Qwen3ForCausalLM", 151936, 4096, 22016, 32, 32, 32, 128, 32768},
    {Architecture::gpt2, "GPT2LMHeadModel", 50257, 768, 0, 12, 12, 0, 0, 1024},
}};
constexpr double default_theta = 10000, default_eps = 1e-6, default_gpt2_eps = 1e-5;
constexpr std::int64_t default_window = 4096, default_full_layers = 28;

/// Keys that change nothing of what is computed here: names, remarks, how others run it.
constexpr std::array<std::string_view, 48> harmless{
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "max_length",
    "max_window_layers",
    "model_type",
    "n_ctx",
    "num_labels",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "reorder_and_upcast_attn",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "tf_legacy_loss",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
};

/// Keys that ask for what no layer here computes, unless they have the value that asks for nothing.
struct Refusal {
  const char* key;
  const char* harmless;  // as JSON
  const char* why;
};
constexpr std::array<Refusal, 30> refusals{{
    {"quantization_config", "null", "quantized weights are not read; take the model's unquantized folder"},
    {"num_local_experts", "0", "mixtures of experts are not computed here"},
    {"num_experts", "0", "mixtures of experts are not computed here"},
    {"num_experts_per_tok", "0", "mixtures of experts are not computed here"},
    {"n_routed_experts", "0", "mixtures of experts are not computed here"},
    {"moe_intermediate_size", "0", "mixtures of experts are not computed here"},
    {"attn_logit_softcapping", "null", "a softcap on attention scores is not computed here"},
    {"final_logit_softcapping", "null", "a softcap on logits is not computed here"},
    {"query_pre_attn_scalar", "null", "attention scores are scaled by 1 / sqrt(head_dim) alone"},
    {"attention_multiplier", "null", "attention scores are scaled by 1 / sqrt(head_dim) alone"},
    {"embedding_multiplier", "1.0", "scaled embeddings are not computed here"},
    {"residual_multiplier", "1.0", "scaled residuals are not computed here"},
    {"logits_scaling", "1.0", "scaled logits are not computed here"},
    {"logit_scale", "1.0", "scaled logits are not computed here"},
    {"rope_interleaved", "false", "rotary pairs are (i, i + head_dim / 2), not neighbours"},
    {"no_rope_layers", "[]", "layers without rotary positions are not computed here"},
    {"scale_attn_weights", "true", "attention scores are scaled by 1 / sqrt(head_dim)"},
    {"scale_attn_by_inverse_layer_idx", "false", "attention scores are scaled by 1 / sqrt(head_dim) alone"},
    {"add_cross_attention", "false", "cross attention is not computed here"},
    {"is_encoder_decoder", "false", "an encoder is not computed here"},
    {"cross_attention_hidden_size", "null", "cross attention is not computed here"},
    {"is_causal", "true", "attention is causal"},
    {"use_bidirectional_attention", "false", "attention is causal"},
    {"attention_chunk_size", "null", "attention within chunks is not computed here"},
    {"pruned_heads", "{}", "pruned heads are not computed here"},
    {"layer_norm_elementwise_affine", "true", "norms have weights"},
    {"clip_qkv", "null", "clipped queries, keys and values are not computed here"},
    {"auto_map", "null", "the folder's own Python code cannot be run; take a model of one of the known classes"},
    {"pad_vocab_size_multiple", "null", "the vocabulary is that of the tensors"},
    {"is_decoder", "false", "only a plain language model is computed here"},
}};

constexpr std::array<std::string_view, 6> dropouts{"attention_dropout", "hidden_dropout", "resid_pdrop",
                                                   "embd_pdrop",        "attn_pdrop",     "mlp_dropout"};

std::string known_classes() {
  std::vector<const char*> names;
  names.reserve(std::size(classes));
  for (const ModelClass& known : classes) names.push_back(known.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const ModelClass& read_class(JsonKeys& keys) {
  const auto by = [&](auto&& holds) { return std::find_if(classes.begin(), classes.end(), holds); };
  const ModelClass* of_type = nullptr;
  if (keys.has("model_type")) {
    const std::string type = keys.text("model_type", "");
    const auto* const found = by([&](const ModelClass& known) { return type == name_of(known.architecture); });
    if (found == classes.end()) {
      keys.refuse("model_type",
                  fmt::format("{} is not computed here; what is: {}", shown(keys.at("model_type")), known_classes()));
    }
    of_type = found;
  }
  if (!keys.has("architectures")) {
    if (of_type == nullptr) keys.refuse("model_type", "is missing, and so is architectures: is it a model's file?");
    return *of_type;
  }
  const std::vector<std::string> names = keys.texts("architectures");
  const auto* const found = by([&](const ModelClass& known) { return names.size() == 1 && names[0] == known.name; });
  if (found == classes.end()) {
    keys.refuse("architectures",
                fmt::format("{} is not computed here; what is: {}", shown(keys.at("architectures")), known_classes()));
  }
  if (of_type != nullptr && of_type != found) {
    keys.refuse("architectures",
                fmt::format("is {}, but model_type is {}", found->name, name_of(of_type->architecture)));
  }
  return *found;
}

void require_activation(JsonKeys& keys, const char* key, std::initializer_list<const char*> names) {
  const std::string name = keys.text(key, *names.begin());
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  keys.refuse(key, fmt::format("{} is not computed here; what is: {}", shown(keys.at(key)), fmt::join(names, ", ")));
}

/// Returns the window that a class would use, 0 for none: absent is the class's default, null is none.
std::int64_t read_window_length(JsonKeys& keys, const ModelClass& known) {
  const bool qwen = known.architecture == Architecture::qwen2 || known.architecture == Architecture::qwen3;
  const bool given = keys.has("sliding_window"), null = !given && keys.names("sliding_window");
  if (known.architecture == Architecture::llama) {
    if (given) keys.refuse("sliding_window", "has no effect in a LlamaForCausalLM; with a window it is a Mistral");
    return 0;
  }
  if ((qwen && !keys.flag("use_sliding_window", false)) || null) return 0;
  const std::int64_t window = keys.integer("sliding_window", default_window);
  if (window < 1) keys.refuse("sliding_window", fmt::format("is {}, but must be at least 1, or null", window));
  return window;
}

/// Reads which layers have the window: all or none may.
void read_window(JsonKeys& keys, const ModelClass& known, ModelConfig& model) {
  const std::int64_t window = read_window_length(keys, known), layers = model.num_hidden_layers;
  const bool mistral = known.architecture == Architecture::mistral;  // its class has one mask for all layers
  std::int64_t sliding = 0;
  if (window > 0) {
    const std::int64_t first =
        mistral ? 0 : std::max<std::int64_t>(0, keys.integer("max_window_layers", default_full_layers));
    sliding = first < layers ? layers - first : 0;
  }
  if (keys.has("layer_types")) {
    const std::vector<std::string> types = keys.texts("layer_types");
    const std::int64_t listed = std::count(types.begin(), types.end(), "sliding_attention");
    const std::int64_t full = std::count(types.begin(), types.end(), "full_attention");
    if (std::ssize(types) != layers || listed + full != layers) {
      keys.refuse("layer_types",
                  fmt::format("must name full_attention or sliding_attention for each of {} layers", layers));
    }
    if (listed > 0 && window == 0) keys.refuse("layer_types", "has sliding_attention, but there is no sliding window");
    if (mistral && listed != sliding) {
      keys.refuse("layer_types", "says otherwise than sliding_window, by which a MistralForCausalLM goes");
    }
    sliding = listed;
  }
  if (sliding != 0 && sliding != layers) {
    keys.refuse(keys.has("layer_types") ? "layer_types" : "max_window_layers",
                fmt::format("{} of {} layers have a sliding window and the others have none, but here all layers share "
                            "one mask",
                            sliding, layers));
  }
  model.sliding_window = sliding > 0 ? window : 0;
}

void read_llama_family(JsonKeys& keys, const ModelClass& known, ModelConfig& model, std::vector<std::string>& logs) {
  model.hidden_size = keys.integer("hidden_size", known.hidden_size);
  model.num_hidden_layers = keys.integer("num_hidden_layers", known.layers);
  model.num_attention_heads = keys.integer("num_attention_heads", known.heads);
  const bool no_groups = keys.names("num_key_value_heads") && !keys.has("num_key_value_heads");
  model.num_key_value_heads = no_groups ? 0 : keys.integer("num_key_value_heads", known.key_value_heads);
  const bool plain_heads = known.head_dim == 0 && !keys.has("head_dim");
  model.head_dim = plain_heads ? 0 : keys.integer("head_dim", known.head_dim);
  model.intermediate_size = keys.integer("intermediate_size", known.intermediate_size);
  model.max_position_embeddings = keys.integer("max_position_embeddings", known.max_position_embeddings);
  model.rms_norm_eps = keys.real("rms_norm_eps", default_eps);
  model.tie_word_embeddings = keys.flag("tie_word_embeddings", false);
  require_activation(keys, "hidden_act", {"silu", "swish"});
  const bool llama = known.architecture == Architecture::llama;
  const auto bias = [&](const char* key, bool possible) {
    const bool asked = keys.flag(key, false);
    if (asked && !possible) keys.refuse(key, fmt::format("{} has no such biases in transformers", known.name));
    return asked;
  };
  model.attention_bias = bias("attention_bias", llama || known.architecture == Architecture::qwen3);
  model.mlp_bias = bias("mlp_bias", llama);
  read_window(keys, known, model);
  read_rope(keys, default_theta, model, logs);
}

void read_gpt2(JsonKeys& keys, const ModelClass& known, ModelConfig& model) {
  model.hidden_size = keys.integer("n_embd", known.hidden_size);
  model.num_hidden_layers = keys.integer("n_layer", known.layers);
  model.num_attention_heads = keys.integer("n_head", known.heads);
  if (model.num_attention_heads > 0 && model.hidden_size % model.num_attention_heads != 0) {
    keys.refuse("n_embd",
                fmt::format("{} does not divide by n_head = {}", model.hidden_size, model.num_attention_heads));
  }
  model.intermediate_size =
      keys.has("n_inner") ? keys.integer("n_inner", 0) : 4 * std::clamp<std::int64_t>(model.hidden_size, 1, 262144);
  model.max_position_embeddings = keys.integer("n_positions", known.max_position_embeddings);
  model.rms_norm_eps = keys.real("layer_norm_epsilon", default_gpt2_eps);
  model.tie_word_embeddings = keys.flag("tie_word_embeddings", true);
  require_activation(keys, "activation_function", {"gelu_new", "gelu_pytorch_tanh"});
}

void settle_other_keys(JsonKeys& keys, std::vector<std::string>& logs) {
  for (const Refusal& refusal : refusals) {
    if (!keys.has(refusal.key) || keys.at(refusal.key) == parse_strict_json(refusal.harmless)) continue;
    keys.refuse(refusal.key, fmt::format("is {}; {}", shown(keys.at(refusal.key)), refusal.why));
  }
  std::vector<std::string> dropped;
  for (const std::string_view name : dropouts) {
    const std::string key(name);
    if (keys.has(key) && keys.real(key, 0) != 0) dropped.push_back(fmt::format("{} {}", key, keys.real(key, 0)));
  }
  if (!dropped.empty()) {
    logs.push_back(
        fmt::format("{}: dropout ({}) has no effect: training here has none", keys.path(), fmt::join(dropped, ", ")));
  }
  for (const std::string_view key : harmless) keys.names(std::string(key));
  for (const std::string& key : keys.unasked()) {
    const nlohmann::json& value = keys.at(key);
    if (asks_for_nothing(value)) continue;
    keys.refuse(key, fmt::format("{} is not known here, and may change what the model computes; if it does not, remove "
                                 "it from the file",
                                 shown(value)));
  }
}

void read_ends(JsonKeys& keys, HuggingFaceConfig& config) {
  if (keys.has("bos_token_id")) config.bos_token_id = keys.integer("bos_token_id", 0);
  if (!keys.has("eos_token_id")) return;
  if (!keys.at("eos_token_id").is_array()) {
    config.eos_token_ids = {keys.integer("eos_token_id", 0)};
    return;
  }
  for (const nlohmann::json& id : keys.at("eos_token_id")) {
    const std::optional<std::int64_t> number = whole_number(id);
    if (!number) keys.refuse("eos_token_id", "must be a token's number, or a list of them");
    config.eos_token_ids.push_back(*number);
  }
}

}  // namespace

void check_model_of_file(ModelConfig& model, const std::string& path) {
  Config config;
  config.model = model;
  const std::vector<std::string> no_settings;
  ConfigProblems problems(path, no_settings);
  for (const ConfigKey& key : config_keys()) {
    if (!key.path.starts_with("model.")) continue;
    Config ignored;
    const YamlValue line = parse_yaml("value: " + key.write(config));
    key.read(ignored, line.entries.at(0).value, [&](int, const std::string& what) { problems.add(key.path, what); });
  }
  try {
    problems.throw_if_any();
    resolve_and_check(config, ConfigUse::know, problems);
    check_model(config, problems);
    problems.throw_if_any();
  } catch (const Error& error) {
    fail(ExitCode::checkpoint, "{}", error.what());
  }
  model = config.model;
}

bool is_hugging_face_folder(const std::string& folder) {
  return path_exists(folder + "/config.json");
}

const char* hugging_face_class(Architecture architecture) {
  const auto* const found = std::ranges::find(classes, architecture, &ModelClass::architecture);
  return found == classes.end() ? nullptr : found->name;
}

HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& path) {
  nlohmann::json json;
  try {
    json = parse_strict_json(text);
  } catch (const std::exception& error) {
    fail(ExitCode::checkpoint, "{}: is no JSON: {}", path, error.what());
  }
  if (!json.is_object()) fail(ExitCode::checkpoint, "{}: is {}, but must be an object", path, shown(json));
  JsonKeys keys(json, path);
  const ModelClass& known = read_class(keys);
  HuggingFaceConfig config;
  ModelConfig& model = config.model;
  model.architecture = known.architecture;
  model.vocab_size = keys.integer("vocab_size", known.vocab_size);
  model.initializer_range = keys.real("initializer_range", model.initializer_range);
  if (known.architecture == Architecture::gpt2) {
    read_gpt2(keys, known, model);
  } else {
    read_llama_family(keys, known, model, config.logs);
  }
  read_ends(keys, config);
  settle_other_keys(keys, config.logs);
  check_model_of_file(model, path);
  return config;
}

HuggingFaceConfig read_hugging_face_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!path_exists(path, ExitCode::checkpoint)) {
    fail(ExitCode::checkpoint, "{}: is no Hugging Face folder: it has no config.json", folder);
  }
  return parse_hugging_face_config(read_in_folder(folder, "config.json", ExitCode::checkpoint, largest_file), path);
}

}  // namespace ringtrain
