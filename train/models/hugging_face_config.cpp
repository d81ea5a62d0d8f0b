// Reads config.json. What a key says becomes a model key; a request for something that no layer computes is refused;
// keys that change nothing here are in a list.
#include "train/models/hugging_face_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <string_view>
#include <utility>

#include "framework/error.h"
#include "framework/storage/files.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/strict_json.h"
#include "layers/check_model.h"
#include "train/models/hugging_face_families.h"
#include "train/models/hugging_face_rope.h"
#include "train/models/json_keys.h"

namespace ringtrain {

namespace {

constexpr std::int64_t largest_file = 1 << 20;

constexpr std::int64_t default_full_layers = 28, default_rope_interval = 4;

/// Keys that do not change what is computed here: names, remarks, settings for other programs.
constexpr std::array<std::string_view, 49> harmless{
    "_attn_implementation_autoset",
    "_name_or_path",
    "_num_labels",
    "attn_implementation",
    "cache_implementation",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "dtype",
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
    "n_ctx",
    "n_special",
    "num_labels",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    "predict_special_tokens",
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

/// Keys that request something that no layer here computes, unless they have the value that requests nothing.
struct Refusal {
  const char* key;
  const char* harmless;  // as JSON
  const char* why;
};
constexpr std::array<Refusal, 29> refusals{{
    {"quantization_config", "null", "quantized weights are not read; take the model's unquantized folder"},
    {"num_local_experts", "0", "mixtures of experts are not supported"},
    {"num_experts", "0", "mixtures of experts are not supported"},
    {"num_experts_per_tok", "0", "mixtures of experts are not supported"},
    {"n_routed_experts", "0", "mixtures of experts are not supported"},
    {"moe_intermediate_size", "0", "mixtures of experts are not supported"},
    {"attn_logit_softcapping", "null", "this class has no softcap on attention scores"},
    {"final_logit_softcapping", "null", "this class has no softcap on logits"},
    {"query_pre_attn_scalar", "null", "this class scales attention scores by 1 / sqrt(head_dim)"},
    {"attention_multiplier", "null", "this class scales attention scores by 1 / sqrt(head_dim)"},
    {"embedding_multiplier", "1.0", "this class does not scale embeddings"},
    {"residual_multiplier", "1.0", "this class does not scale what is added to the residual stream"},
    {"logits_scaling", "1.0", "this class does not scale logits"},
    {"logit_scale", "1.0", "scaled logits are not supported"},
    {"rope_interleaved", "false", "rotary pairs of neighbors are not supported, only (i, i + head_dim / 2)"},
    {"no_rope_layers", "[]", "this class has rotary positions in all layers"},
    {"scale_attn_weights", "true", "attention scores are scaled by 1 / sqrt(head_dim)"},
    {"scale_attn_by_inverse_layer_idx", "false", "attention scores are scaled only by 1 / sqrt(head_dim)"},
    {"add_cross_attention", "false", "cross attention is not supported"},
    {"is_encoder_decoder", "false", "an encoder is not supported"},
    {"cross_attention_hidden_size", "null", "cross attention is not supported"},
    {"is_causal", "true", "only causal attention is supported"},
    {"use_bidirectional_attention", "false", "only causal attention is supported"},
    {"attention_chunk_size", "null", "attention within chunks is not supported"},
    {"pruned_heads", "{}", "pruned heads are not supported"},
    {"layer_norm_elementwise_affine", "true", "norms without weights are not supported"},
    {"clip_qkv", "null", "clipped queries, keys and values are not supported"},
    {"pad_vocab_size_multiple", "null", "padding the vocabulary is not supported"},
    {"is_decoder", "false", "only a plain language model is supported"},
}};

constexpr std::array<std::string_view, 6> dropouts{"attention_dropout", "hidden_dropout", "resid_pdrop",
                                                   "embd_pdrop",        "attn_pdrop",     "mlp_dropout"};

const Family& read_family(JsonKeys& keys) {
  const auto family_that = [&](const char* key, auto&& holds) {
    const auto* const found = std::ranges::find_if(families, holds);
    if (found != families.end()) return found;
    keys.refuse(key, "{} is not supported; the supported ones are {}", shown(keys.at(key)),
                fmt::join(families | std::views::transform(&Family::name), ", "));
  };
  const Family* of_type = nullptr;
  if (keys.has("model_type")) {
    const std::string type = keys.text("model_type", "");
    of_type = family_that("model_type", [&](const Family& family) { return type == name_of(family.architecture); });
  }
  if (!keys.has("architectures")) {
    if (of_type == nullptr) keys.refuse("model_type", "is missing, and so is architectures; is this a model's file?");
    return *of_type;
  }
  const std::vector<std::string> names = keys.texts("architectures");
  const Family* const named =
      family_that("architectures", [&](const Family& family) { return names.size() == 1 && names[0] == family.name; });
  if (of_type != nullptr && of_type != named) {
    keys.refuse("architectures", "is {}, but model_type is {}", named->name, name_of(of_type->architecture));
  }
  return *named;
}

/// Reads which classes of the folder's own Python code replace those of transformers: accepted if it is the class
/// computed here. Runs no code.
void read_auto_map(JsonKeys& keys, const Family& family, std::vector<std::string>& logs) {
  if (!keys.has("auto_map")) return;
  const nlohmann::json& map = keys.at("auto_map");
  const auto model = map.find("AutoModelForCausalLM");
  const std::string name = model != map.end() && model->is_string() ? model->get<std::string>() : "";
  if (name.substr(name.rfind('.') + 1) != family.name) {  // npos + 1 is 0
    keys.refuse("auto_map", "is {}; the folder's own Python code cannot be run; use a model of a supported class",
                shown(map));
  }
  logs.push_back(
      fmt::format("{}: auto_map names Python code, which is not run; the model is read as the {} of transformers",
                  keys.path(), family.name));
}

/// Checks a key that a class does not read, but that its published files have in addition to one that it does read:
/// both must say the same.
void require_same(JsonKeys& keys, const char* unread, const char* read, const nlohmann::json& value) {
  if (!keys.has(unread) || keys.at(unread) == value) return;
  keys.refuse(unread, "is {}, but {}, which the class reads, is {}", shown(keys.at(unread)), read, shown(value));
}

/// Returns what a size's key says. GPT-2's class also accepts the other classes' names for its own.
std::int64_t read_size(JsonKeys& keys, const char* key, const char* other_name, std::int64_t other) {
  if (std::string_view(key) == other_name || !keys.has(other_name)) return keys.integer(key, other);
  const std::int64_t value = keys.integer(other_name, other);
  if (keys.has(key) && keys.integer(key, other) != value) {
    keys.refuse(other_name, "is {}, but {} is {}", value, key, keys.integer(key, other));
  }
  return value;
}

void require_activation(JsonKeys& keys, const char* key, std::initializer_list<const char*> names) {
  const std::string name = keys.text(key, *names.begin());
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  keys.refuse(key, "{} is not supported; the supported ones are {}", shown(keys.at(key)), fmt::join(names, ", "));
}

/// Returns the window that a class would use, 0 for no window: an absent key is the class's default, null is no window.
std::int64_t read_window_length(JsonKeys& keys, const Family& family) {
  const bool given = keys.has("sliding_window"), null = !given && keys.names("sliding_window");
  if (family.window == WindowKeys::none) {
    if (given) keys.refuse("sliding_window", "has no effect in a {}; remove it, or use Mistral's class", family.name);
    return 0;
  }
  const bool flagged = family.window == WindowKeys::layers || family.window == WindowKeys::unrotated;
  if ((flagged && !keys.flag("use_sliding_window", false)) || null) return 0;
  if ((family.window == WindowKeys::unrotated || family.absent_window == 0) && !given) return 0;
  const std::int64_t window = keys.integer("sliding_window", family.absent_window);
  if (window < 1) keys.refuse("sliding_window", "is {}, but must be at least 1, or null", window);
  if (family.window == WindowKeys::pattern) require_same(keys, "sliding_window_size", "sliding_window", window);
  return window;
}

/// Returns the shortest list that repeats to the same entries: an empty one if all entries are `plain`.
template <class T>
std::vector<T> shortest(std::vector<T> list, T plain) {
  if (std::ranges::count(list, plain) == std::ssize(list)) return {};
  for (std::size_t period = 1; period < list.size(); ++period) {
    const auto repeats = [&](std::size_t i) { return list[i] == list[i % period]; };
    std::size_t same = period;
    while (same < list.size() && repeats(same)) ++same;
    if (same == list.size()) list.resize(period);
  }
  return list;
}

/// Reads which layers rotate: by no_rope_layers, in which 1 means that a layer rotates; otherwise all except every
/// n-th.
std::vector<LayerPositions> read_positions(JsonKeys& keys, const Family& family, std::int64_t layers) {
  std::vector<LayerPositions> positions(static_cast<std::size_t>(layers), LayerPositions::rope);
  if (family.window != WindowKeys::unrotated) return positions;
  const std::int64_t interval = keys.integer("no_rope_layer_interval", default_rope_interval);
  if (interval < 1) keys.refuse("no_rope_layer_interval", "is {}, but must be at least 1", interval);
  const std::vector<double> listed = keys.has("no_rope_layers") ? keys.reals("no_rope_layers") : std::vector<double>{};
  if (keys.has("no_rope_layers") && std::ssize(listed) < layers) {
    keys.refuse("no_rope_layers", "has {} entries for {} layers", listed.size(), layers);
  }
  for (std::size_t layer = 0; layer < positions.size(); ++layer) {
    const bool rotates = listed.empty() ? (static_cast<std::int64_t>(layer) + 1) % interval != 0 : listed[layer] != 0;
    if (!rotates) positions[layer] = LayerPositions::none;
  }
  return positions;
}

/// Returns what sliding_window_pattern says, or the class's default.
std::int64_t read_pattern(JsonKeys& keys, const Family& family) {
  if (family.window != WindowKeys::pattern) return 0;
  const std::int64_t pattern = keys.integer("sliding_window_pattern", family.window_pattern);
  if (pattern < 1) keys.refuse("sliding_window_pattern", "is {}, but must be at least 1", pattern);
  if (family.pattern_key) keys.names("_sliding_window_pattern");  // transformers 5 saves it with layer_types
  return pattern;
}

/// Returns which layers have the window if layer_types does not say so. pattern: all except every n-th; 0: all.
std::vector<LayerType> default_types(JsonKeys& keys, const Family& family, std::int64_t window, std::int64_t pattern,
                                     const std::vector<LayerPositions>& positions) {
  std::int64_t first = 0;
  if (family.window == WindowKeys::layers) first = keys.integer("max_window_layers", default_full_layers);
  std::vector<LayerType> types(positions.size(), LayerType::full_attention);
  for (std::int64_t layer = 0; window > 0 && layer < std::ssize(types); ++layer) {
    const auto index = static_cast<std::size_t>(layer);
    const bool of_pattern = pattern == 0 || (layer + 1) % pattern != 0;
    const bool of_rope = family.window != WindowKeys::unrotated || positions[index] == LayerPositions::none;
    if (layer >= first && of_pattern && of_rope) types[index] = LayerType::sliding_attention;
  }
  return types;
}

/// Reads how layers differ: which have the window, and which rotate.
void read_layers(JsonKeys& keys, const Family& family, ModelConfig& model) {
  const std::int64_t layers = std::clamp<std::int64_t>(model.num_hidden_layers, 0, 8192);
  const std::vector<LayerPositions> positions = read_positions(keys, family, layers);
  const std::int64_t window = read_window_length(keys, family);
  const std::int64_t pattern = read_pattern(keys, family);
  const auto types_of = [&](std::int64_t n) { return default_types(keys, family, window, n, positions); };
  std::vector<LayerType> types = types_of(family.pattern_key ? pattern : family.window_pattern);
  if (keys.has("layer_types")) {
    std::vector<LayerType> listed;
    const std::vector<std::string> names = keys.texts("layer_types");
    for (const std::string& name : names) {
      const auto* const found =
          std::ranges::find_if(layer_type_names, [&](const Named<LayerType>& known) { return name == known.name; });
      if (found != layer_type_names.end()) listed.push_back(found->value);
    }
    if (std::ssize(listed) != layers || std::ssize(names) != layers) {
      keys.refuse("layer_types", "must name full_attention or sliding_attention for each of {} layers", layers);
    }
    const bool sliding = std::ranges::count(listed, LayerType::sliding_attention) > 0;
    if (sliding && window == 0) keys.refuse("layer_types", "has sliding_attention, but there is no sliding window");
    if (family.window == WindowKeys::length && listed != types) {
      keys.refuse("layer_types", "contradicts sliding_window, which a {} uses", family.name);
    }
    types = listed;
  }
  if (!family.pattern_key && pattern != family.window_pattern && types != types_of(pattern)) {
    keys.refuse("sliding_window_pattern", "is {}, but {} does not read it; give layer_types instead", pattern,
                family.name);
  }
  const bool any = std::ranges::count(types, LayerType::sliding_attention) > 0;
  model.sliding_window = any ? window : 0;
  if (any) model.layer_types = shortest(std::move(types), LayerType::sliding_attention);
  model.layer_positions = shortest(positions, LayerPositions::rope);
}

void read_sizes(JsonKeys& keys, const Family& family, ModelConfig& model) {
  const SizeKeys& key = family.keys;
  const Family::Sizes& sizes = family.sizes;
  model.vocab_size = keys.integer("vocab_size", sizes.vocab_size);
  model.hidden_size = read_size(keys, key.hidden_size, llama_keys.hidden_size, sizes.hidden_size);
  model.num_hidden_layers = read_size(keys, key.layers, llama_keys.layers, sizes.layers);
  model.num_attention_heads = read_size(keys, key.heads, llama_keys.heads, sizes.heads);
  model.max_position_embeddings = read_size(keys, key.positions, llama_keys.positions, sizes.positions);
  if (model.max_position_embeddings < 1) {
    keys.refuse(key.positions, "is {}, but must be at least 1", model.max_position_embeddings);
  }
  const bool wide = sizes.intermediate_size == 0 && !keys.has(key.intermediate_size);
  model.intermediate_size = wide ? 4 * std::clamp<std::int64_t>(model.hidden_size, 1, 262144)
                                 : keys.integer(key.intermediate_size, sizes.intermediate_size);
  model.rms_norm_eps = keys.real(key.eps, family.eps);
  model.tie_word_embeddings = keys.flag("tie_word_embeddings", family.tied);
}

/// Reads the additional keys of classes with rotary positions.
void read_rotary(JsonKeys& keys, const Family& family, ModelConfig& model, std::vector<std::string>& logs) {
  const bool no_groups = keys.names("num_key_value_heads") && !keys.has("num_key_value_heads");
  model.num_key_value_heads = no_groups ? 0 : keys.integer("num_key_value_heads", family.sizes.key_value_heads);
  const bool plain_heads = family.sizes.head_dim == 0 && !keys.has("head_dim");
  model.head_dim = plain_heads ? 0 : keys.integer("head_dim", family.sizes.head_dim);
  if (family.gelu) {
    require_activation(keys, "hidden_activation", {"gelu_pytorch_tanh"});
    require_same(keys, "hidden_act", "hidden_activation", "gelu_pytorch_tanh");
  } else {
    require_activation(keys, "hidden_act", {"silu", "swish"});
  }
  if (family.query_scalar > 0) {
    model.query_pre_attn_scalar = keys.real("query_pre_attn_scalar", family.query_scalar);
    if (!(model.query_pre_attn_scalar > 0)) keys.refuse("query_pre_attn_scalar", "must be above 0");
  }
  const auto softcap = [&](const char* key, double absent) {
    if (absent == 0 || (keys.names(key) && !keys.has(key))) return 0.0;  // null: no softcap
    const double cap = keys.real(key, absent);
    if (keys.has(key) && !(cap > 0)) keys.refuse(key, "must be above 0, or null");
    return cap;
  };
  model.attention_softcap = softcap("attn_logit_softcapping", family.attention_softcap);
  model.final_softcap = softcap("final_logit_softcapping", family.final_softcap);
  if (family.multipliers) {
    const auto factor = [&](const char* key) {
      const double value = keys.real(key, 1);
      if (!(value > 0)) keys.refuse(key, "must be above 0");
      return value;
    };
    const double of_scores = factor("attention_multiplier");
    model.query_pre_attn_scalar = 1 / (of_scores * of_scores);
    model.embedding_multiplier = factor("embedding_multiplier");
    model.residual_multiplier = factor("residual_multiplier");
    model.logits_scaling = factor("logits_scaling");
  }
  const auto bias = [&](const char* key, bool possible) {
    const bool asked = keys.flag(key, false);
    if (asked && !possible) keys.refuse(key, "{} has no such biases in transformers", family.name);
    return asked;
  };
  model.attention_bias = bias("attention_bias", family.attention_bias);
  model.mlp_bias = bias("mlp_bias", family.mlp_bias);
  read_layers(keys, family, model);
  read_rope(keys, family, model, logs);
}

/// Reads the additional keys of GPT-2's class.
void read_gpt2(JsonKeys& keys, ModelConfig& model) {
  if (model.num_attention_heads > 0 && model.hidden_size % model.num_attention_heads != 0) {
    keys.refuse("n_embd", "{} is not divisible by n_head = {}", model.hidden_size, model.num_attention_heads);
  }
  require_activation(keys, "activation_function", {"gelu_new", "gelu_pytorch_tanh"});
}

void settle_other_keys(JsonKeys& keys, std::vector<std::string>& logs) {
  for (const Refusal& refusal : refusals) {
    if (keys.asked(refusal.key)) continue;  // the class has read it
    if (!keys.has(refusal.key) || keys.at(refusal.key) == parse_strict_json(refusal.harmless)) continue;
    keys.refuse(refusal.key, "is {}; {}", shown(keys.at(refusal.key)), refusal.why);
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
    keys.refuse(key,
                "is {}; this key is unknown, and may change what the model computes; if not, remove it from the file",
                shown(value));
  }
}

EndIds read_ends(JsonKeys& keys) {
  EndIds ids;
  if (keys.has("bos_token_id")) ids.begin = keys.integer("bos_token_id", 0);
  if (!keys.has("eos_token_id")) return ids;
  const nlohmann::json& ends = keys.at("eos_token_id");
  for (const nlohmann::json& id : ends.is_array() ? ends : nlohmann::json::array({ends})) {
    const std::optional<std::int64_t> number = whole_number(id);
    if (!number) keys.refuse("eos_token_id", "must be a token's number, or a list of them");
    ids.ends.push_back(*number);
  }
  return ids;
}

}  // namespace

void EndIds::add(const EndIds& other) {
  if (!begin) begin = other.begin;
  for (const std::int64_t id : other.ends) {
    if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  }
}

EndIds read_generation_config(const std::string& folder) {
  const std::string path = folder + "/generation_config.json";
  if (!path_exists(path, ExitCode::checkpoint)) return {};
  const nlohmann::json json =
      parse_object(read_in_folder(folder, "generation_config.json", ExitCode::checkpoint, largest_file), path);
  JsonKeys keys(json, path);
  return read_ends(keys);
}

bool is_hugging_face_folder(const std::string& folder) {
  return path_exists(folder + "/config.json");
}

HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& path) {
  const nlohmann::json json = parse_object(text, path);
  JsonKeys keys(json, path);
  const Family& family = read_family(keys);
  HuggingFaceConfig config;
  ModelConfig& model = config.model;
  model.architecture = family.architecture;
  model.initializer_range = keys.real("initializer_range", model.initializer_range);
  read_auto_map(keys, family, config.logs);
  read_sizes(keys, family, model);
  if (family.rotary) {
    read_rotary(keys, family, model, config.logs);
  } else {
    read_gpt2(keys, model);
  }
  config.ends = read_ends(keys);
  settle_other_keys(keys, config.logs);
  check_model_of_file(model, path);
  return config;
}

HuggingFaceConfig read_hugging_face_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!path_exists(path, ExitCode::checkpoint)) {
    fail(ExitCode::checkpoint, "{}: is not a Hugging Face folder: it has no config.json", folder);
  }
  return parse_hugging_face_config(read_in_folder(folder, "config.json", ExitCode::checkpoint, largest_file), path);
}

}  // namespace ringtrain
