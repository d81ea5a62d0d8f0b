// Writes config.json: the keys that the classes of transformers 4 and 5 read, and no others.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/config/config.h"
#include "framework/config/config_problems.h"
#include "framework/config/read_config.h"
#include "framework/error.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/strict_json.h"
#include "layers/model_spec.h"
#include "train/models/hugging_face_config.h"
#include "train/models/hugging_face_families.h"
#include "train/models/hugging_face_rope.h"

namespace ringtrain {

namespace {

using nlohmann::json;

/// Throws an error that says why a model cannot be written.
[[noreturn]] void refuse(const ModelConfig& model, const std::string& why) {
  fail(ExitCode::usage, "a model of architecture {} cannot be written for transformers: {}",
       name_of(model.architecture), why);
}

/// Returns a model in transformers' terms: a Llama with a window is a Mistral, and ntk is another theta.
ModelConfig in_their_words(ModelConfig model, std::int64_t context_length) {
  if (model.architecture == Architecture::llama && model.sliding_window > 0) {
    model.architecture = Architecture::mistral;
  }
  if (model.rope_scaling.type == RopeType::ntk) {
    const auto width = static_cast<double>(model.head_dim);
    if (width > 2) model.rope_theta *= std::pow(model.rope_scaling.factor, width / (width - 2));
    model.rope_scaling = {};
    model.rope_scaling.factor = 1;
  }
  if (model.max_position_embeddings == 0) model.max_position_embeddings = context_length;
  return model;
}

/// Throws for what a class's checks refuse, and for what reading back would refuse only in the file's terms.
void check_class_takes(const ModelConfig& model, const Family& family) {
  const auto refuse_if = [&](bool refused, const std::string& why) {
    if (refused) refuse(model, fmt::format("{} {}", family.name, why));
  };
  const std::int64_t width = model.hidden_size, heads = model.num_attention_heads;
  const double scalar = score_divisor(model);
  const RopeType rope = model.rope_scaling.type;
  const bool phi3 = family.only_longrope(), longrope = rope == RopeType::longrope;
  refuse_if(family.rotary && !family.any_head_dim && width % heads != 0,
            fmt::format("needs a model.hidden_size that is a multiple of model.num_attention_heads, not {} and {}",
                        width, heads));
  refuse_if(family.query_scalar > 0 && scalar != std::floor(scalar),
            fmt::format("needs a whole number for model.query_pre_attn_scalar, which is {}", scalar));
  refuse_if(phi3 && rope != RopeType::none && rope != RopeType::ntk && !longrope,
            fmt::format("supports only longrope, but model.rope_scaling.type is {}", name_of(rope)));
  refuse_if(phi3 && longrope && model.head_dim != width / heads,
            fmt::format("supports longrope only for heads of model.hidden_size / model.num_attention_heads = {} "
                        "elements, but model.head_dim is {}",
                        width / heads, model.head_dim));
  refuse_if(family.architecture == Architecture::llama && model.initializer_range > 1,
            fmt::format("needs a model.initializer_range of at most 1, not {}", model.initializer_range));
  refuse_if(family.ropes_by_layer() && !model.rope_scaling.truncate,
            "always truncates in yarn, so model.rope_scaling.truncate must be true");
}

/// Returns a model with everything that it computes spelled out: models that compute the same become equal.
Config spelled_out(ModelConfig model) {
  const ModelSpec spec = model_spec(model);
  model.query_pre_attn_scalar = score_divisor(model);
  model.embedding_multiplier = spec.embedding_factor;
  model.layer_types.clear();
  model.layer_positions.clear();
  for (const LayerSpec& layer : spec.layers) {
    model.layer_types.push_back(layer.mask.window > 0 ? LayerType::sliding_attention : LayerType::full_attention);
    model.layer_positions.push_back(layer.rope ? LayerPositions::rope : LayerPositions::none);
  }
  const std::vector<LayerType>& types = model.layer_types;
  if (std::ranges::count(types, types[0]) == std::ssize(types)) model.layer_types.clear();  // sliding_window says it
  RopeScalingConfig& scaling = model.rope_scaling;
  if (scaling.type == RopeType::none && model.sliding_rope_theta == model.rope_theta) model.sliding_rope_theta = 0;
  if (!needs_trained_length(scaling.type)) scaling.original_max_position_embeddings = 0;
  Config config;
  config.model = model;
  return config;
}

/// Throws unless a config.json, read back, is the model for which it was written. Every model is written through here.
void check_written(const std::string& text, const ModelConfig& model, const ModelConfig& meant) {
  ModelConfig written;
  try {
    written = parse_hugging_face_config(text, "config.json").model;
  } catch (const Error& error) {
    refuse(model, error.what());
  }
  const double divisor = score_divisor(meant);  // a Granite's file has its inverse root, which is rounded
  if (std::abs(written.query_pre_attn_scalar / divisor - 1) < 1e-14) written.query_pre_attn_scalar = divisor;
  std::vector<std::string> lost;
  for (const ConfigDifference& key : differences(spelled_out(meant), spelled_out(written))) {
    lost.push_back(fmt::format("{} = {} instead of {}", key.key, excerpt(key.after), excerpt(key.before)));
  }
  if (lost.empty()) return;
  refuse(model, fmt::format("{} would have {}", family_of(meant.architecture).name, fmt::join(lost, ", ")));
}

void put_ends(const EndIds& ids, json& out) {
  out["bos_token_id"] = ids.begin ? json(*ids.begin) : json(nullptr);
  out["eos_token_id"] = nullptr;
  if (ids.ends.size() == 1) out["eos_token_id"] = ids.ends[0];
  if (ids.ends.size() > 1) out["eos_token_id"] = ids.ends;
}

void write_sizes(const ModelConfig& model, const SizeKeys& key, json& out) {
  out["vocab_size"] = model.vocab_size;
  out[key.hidden_size] = model.hidden_size;
  out[key.layers] = model.num_hidden_layers;
  out[key.heads] = model.num_attention_heads;
  out[key.intermediate_size] = model.intermediate_size;
  out[key.positions] = model.max_position_embeddings;
  out[key.eps] = model.rms_norm_eps;
}

void write_gpt2(const ModelConfig& model, json& out) {
  out["n_ctx"] = model.max_position_embeddings;
  out["activation_function"] = "gelu_new";
  for (const char* const dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) out[dropout] = 0.0;
}

void write_window(const ModelConfig& model, const Family& family, json& out) {
  const bool window = model.sliding_window > 0;
  if (family.window == WindowKeys::none) return;
  // Classes with a list of layers build a window's mask even if no layer has one, so their default is left in effect.
  if (window || family.window != WindowKeys::pattern) {
    out["sliding_window"] = window ? json(model.sliding_window) : json(nullptr);
  }
  if (family.window == WindowKeys::length) return;
  const std::vector<LayerSpec> layers = model_spec(model).layers;
  const auto slides = [](const LayerSpec& layer) { return layer.mask.window > 0; };
  for (const LayerSpec& layer : layers) {
    out["layer_types"].push_back(
        name_in(layer_type_names, slides(layer) ? LayerType::sliding_attention : LayerType::full_attention));
  }
  if (family.window == WindowKeys::pattern) return;
  out["use_sliding_window"] = window;
  if (family.window == WindowKeys::unrotated) return;
  out["max_window_layers"] = std::ranges::find_if(layers, slides) - layers.begin();
}

void write_rotary(const ModelConfig& model, const Family& family, json& out) {
  out["num_key_value_heads"] = model.num_key_value_heads;
  out["head_dim"] = model.head_dim;
  if (family.gelu) {
    out["hidden_activation"] = "gelu_pytorch_tanh";
  } else {
    out["hidden_act"] = "silu";
  }
  if (family.query_scalar > 0) out["query_pre_attn_scalar"] = static_cast<std::int64_t>(score_divisor(model));
  if (family.final_softcap > 0) {
    const auto softcap = [](double cap) { return cap > 0 ? json(cap) : json(nullptr); };
    out["attn_logit_softcapping"] = softcap(model.attention_softcap);
    out["final_logit_softcapping"] = softcap(model.final_softcap);
  }
  if (family.multipliers) {
    const ModelSpec spec = model_spec(model);
    out["attention_multiplier"] = spec.attention_scale;
    out["embedding_multiplier"] = spec.embedding_factor;
    out["residual_multiplier"] = spec.residual_factor;
    out["logits_scaling"] = model.logits_scaling;
  }
  if (family.window == WindowKeys::unrotated) {  // 1 means that a layer rotates, despite the key's name
    for (const LayerSpec& layer : model_spec(model).layers) out["no_rope_layers"].push_back(layer.rope ? 1 : 0);
  }
  out["attention_dropout"] = 0.0;
  if (family.attention_bias) out["attention_bias"] = model.attention_bias;
  if (family.mlp_bias) out["mlp_bias"] = model.mlp_bias;
  write_window(model, family, out);
  write_rope(model, family, out);
}

}  // namespace

std::string write_generation_config(const std::string& folder, const EndIds& ids) {
  EndIds all = read_generation_config(folder);
  const EndIds known = all;
  all.add(ids);
  const bool there = path_exists(folder + "/generation_config.json", ExitCode::checkpoint);
  if (all == known) return "";
  json out = json::object();
  if (there) out = parse_strict_json(read_in_folder(folder, "generation_config.json", ExitCode::checkpoint));
  put_ends(all, out);
  return json_text(out, 2) + "\n";
}

std::string write_hugging_face_config(const ModelConfig& model, const HuggingFaceConfigExtras& extras) {
  ensure(model.max_position_embeddings > 0 || extras.context_length > 0,
         "a model's length is known when it is written");
  const ModelConfig meant = in_their_words(model, extras.context_length);
  const Family& family = family_of(meant.architecture);
  check_class_takes(model, family);
  json out;
  out["architectures"] = {family.name};
  out["model_type"] = name_of(family.architecture);
  out["initializer_range"] = meant.initializer_range;
  out["tie_word_embeddings"] = meant.tie_word_embeddings;
  out["use_cache"] = true;
  out["dtype"] = extras.dtype;
  out["torch_dtype"] = extras.dtype;
  put_ends(extras.ends, out);
  out["pad_token_id"] = nullptr;  // some classes have a default beyond a small vocabulary
  write_sizes(meant, family.keys, out);
  if (family.rotary) {
    write_rotary(meant, family, out);
  } else {
    write_gpt2(meant, out);
  }
  std::string text = json_text(out, 2) + "\n";
  check_written(text, model, meant);
  return text;
}

}  // namespace ringtrain
