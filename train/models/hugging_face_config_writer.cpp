// Writes config.json: the keys that the classes of transformers 4 and 5 read, and no others.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

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

/// Returns the family whose class computes this model. Throws if none does.
const Family& written_as(const ModelConfig& model) {
  const Family& family = family_of(model.architecture);
  const auto refuse_if = [&](bool cannot, const std::string& what) {
    if (!cannot) return;
    fail(ExitCode::usage, "a model of architecture {} cannot be written for transformers: {}",
         name_of(model.architecture), what);
  };
  const bool window = model.sliding_window > 0;
  refuse_if(!model.layer_types.empty() && (family.window == WindowKeys::none || family.window == WindowKeys::length),
            fmt::format("a {} has one window, or none, for all layers (model.layer_types)", family.name));
  refuse_if(!model.layer_positions.empty() && !family.layer_positions,
            fmt::format("all layers of a {} rotate (model.layer_positions)", family.name));
  refuse_if(model.sliding_rope_theta > 0 && family.sliding_theta == 0,
            fmt::format("all layers of a {} have one base (model.sliding_rope_theta)", family.name));
  refuse_if(!model.rope_scaling.truncate && !family.reads_truncate(),
            fmt::format("{} (model.rope_scaling.truncate)", truncate_is_not_read));
  refuse_if(
      score_divisor(model) != static_cast<double>(model.head_dim) && family.query_scalar == 0 && !family.multipliers,
      fmt::format("a {} divides scores by the root of head_dim (model.query_pre_attn_scalar)", family.name));
  refuse_if(model.attention_sinks, "no class of transformers that is written here has sinks (model.attention_sinks)");
  refuse_if((model.attention_softcap > 0 || model.final_softcap > 0) && !family.softcaps,
            fmt::format("a {} has no softcaps (model.attention_softcap, model.final_softcap)", family.name));
  const ModelSpec spec = model_spec(model);
  ModelConfig plain = model;
  plain.embedding_multiplier = 0;
  const bool scaled = spec.embedding_factor != model_spec(plain).embedding_factor || spec.residual_factor != 1 ||
                      spec.logit_factor != 1;
  refuse_if(scaled && !family.multipliers,
            fmt::format("a {} has no factors of embedding, residual stream and logits (model.embedding_multiplier, "
                        "model.residual_multiplier, model.logits_scaling)",
                        family.name));
  const RopeType rope = model.rope_scaling.type;
  refuse_if(family.trained_length > 0 && rope != RopeType::none && rope != RopeType::ntk && rope != RopeType::longrope,
            fmt::format("a {} has longrope alone (model.rope_scaling.type)", family.name));
  refuse_if(family.rotary && !family.any_head_dim && model.hidden_size % model.num_attention_heads != 0,
            fmt::format("model.hidden_size = {} is not a multiple of model.num_attention_heads = {}", model.hidden_size,
                        model.num_attention_heads));
  refuse_if(!family.rotary && model.num_key_value_heads != model.num_attention_heads,
            "its GPT-2 has as many key/value heads (model.num_key_value_heads) as query heads");
  refuse_if(!family.rotary && model.head_dim * model.num_attention_heads != model.hidden_size,
            "its GPT-2 has heads of model.hidden_size / model.num_attention_heads elements (model.head_dim)");
  if (!window || family.window != WindowKeys::none) return family;
  refuse_if(!family.rotary, "its GPT-2 has no sliding window (model.sliding_window)");
  refuse_if(model.attention_bias || model.mlp_bias,
            "its Llama has no sliding window (model.sliding_window), and its Mistral no biases");
  return family_of(Architecture::mistral);
}

void put_ends(const EndIds& ids, json& out) {
  out["bos_token_id"] = ids.begin ? json(*ids.begin) : json(nullptr);
  out["eos_token_id"] = nullptr;
  if (ids.ends.size() == 1) out["eos_token_id"] = ids.ends[0];
  if (ids.ends.size() > 1) out["eos_token_id"] = ids.ends;
}

void write_sizes(const ModelConfig& model, const Family::Keys& key, std::int64_t context_length, json& out) {
  out["vocab_size"] = model.vocab_size;
  out[key.hidden_size] = model.hidden_size;
  out[key.layers] = model.num_hidden_layers;
  out[key.heads] = model.num_attention_heads;
  out[key.intermediate_size] = model.intermediate_size;
  out[key.positions] = model.max_position_embeddings > 0 ? model.max_position_embeddings : context_length;
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
  // Classes whose layers are listed make the mask of a window even for layers that have none: their default stands.
  if (window || family.window != WindowKeys::pattern) {
    out["sliding_window"] = window ? json(model.sliding_window) : json(nullptr);
  }
  if (family.window == WindowKeys::length) return;
  const std::vector<LayerSpec> layers = model_spec(model).layers;
  const auto slides = [](const LayerSpec& layer) { return layer.mask.window > 0; };
  std::vector<const char*> types;
  for (const LayerSpec& layer : layers) {
    types.push_back(
        name_in(layer_type_names, slides(layer) ? LayerType::sliding_attention : LayerType::full_attention));
  }
  out["layer_types"] = types;
  if (family.window == WindowKeys::pattern) return;
  out["use_sliding_window"] = window;
  if (family.window == WindowKeys::unrotated) return;
  out["max_window_layers"] = std::ranges::find_if(layers, slides) - layers.begin();
}

void write_positions(const ModelConfig& model, json& out) {
  std::vector<int> rotates;  // the key's name notwithstanding
  for (const LayerSpec& layer : model_spec(model).layers) rotates.push_back(layer.rope ? 1 : 0);
  out["no_rope_layers"] = rotates;
}

void write_rotary(const ModelConfig& model, const Family& family, json& out) {
  out["num_key_value_heads"] = model.num_key_value_heads;
  out["head_dim"] = model.head_dim;
  if (family.gelu) {
    out["hidden_activation"] = "gelu_pytorch_tanh";
  } else {
    out["hidden_act"] = "silu";
  }
  if (family.query_scalar > 0) {
    const double scalar = score_divisor(model);
    const bool whole = scalar == std::floor(scalar);  // the class takes nothing else
    out["query_pre_attn_scalar"] = whole ? json(static_cast<std::int64_t>(scalar)) : json(scalar);
  }
  if (family.softcaps) {
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
  if (family.layer_positions) write_positions(model, out);
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
  const Family& family = written_as(model);
  json out;
  out["architectures"] = {family.name};
  out["model_type"] = name_of(family.architecture);
  out["initializer_range"] = model.initializer_range;
  out["tie_word_embeddings"] = model.tie_word_embeddings;
  out["use_cache"] = true;
  out["dtype"] = extras.dtype;
  out["torch_dtype"] = extras.dtype;
  put_ends(extras.ends, out);
  out["pad_token_id"] = nullptr;  // some classes have a default beyond a small vocabulary
  write_sizes(model, family.keys, extras.context_length, out);
  if (family.rotary) {
    write_rotary(model, family, out);
  } else {
    write_gpt2(model, out);
  }
  return json_text(out, 2) + "\n";
}

}  // namespace ringtrain
