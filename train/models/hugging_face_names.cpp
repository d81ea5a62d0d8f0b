#include "train/models/hugging_face_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "framework/config/model_config.h"
#include "framework/error.h"
#include "train/models/hugging_face_families.h"

namespace ringtrain {

namespace {

constexpr std::string_view layer_prefix = "model.layers.";

/// A name of ours in parts: "model.layers." + layer + "." + module, else module alone; then "weight" or "bias".
struct NameParts {
  std::string layer;  // "" outside the layers
  std::string module, kind;
};

NameParts parts_of(const std::string& name) {
  NameParts parts;
  const std::size_t last = name.rfind('.');
  parts.kind = name.substr(last + 1);
  parts.module = name.substr(0, last);
  if (name.starts_with(layer_prefix)) {
    const std::size_t dot = name.find('.', layer_prefix.size());
    parts.layer = name.substr(layer_prefix.size(), dot - layer_prefix.size());
    parts.module = name.substr(dot + 1, last - dot - 1);
  }
  return parts;
}

/// What GPT-2 calls a module, and how it holds its weight.
struct Gpt2Module {
  std::string_view ours, theirs;
  bool transposed = false;
  int part = 0;  // of c_attn: queries, keys, values
};
constexpr std::string_view fused_attention = "attn.c_attn";
constexpr std::array gpt2_modules{Gpt2Module{"model.embed_tokens", "wte"},
                                  Gpt2Module{"model.embed_positions", "wpe"},
                                  Gpt2Module{"input_layernorm", "ln_1"},
                                  Gpt2Module{"self_attn.q_proj", fused_attention, true, 0},
                                  Gpt2Module{"self_attn.k_proj", fused_attention, true, 1},
                                  Gpt2Module{"self_attn.v_proj", fused_attention, true, 2},
                                  Gpt2Module{"self_attn.o_proj", "attn.c_proj", true},
                                  Gpt2Module{"post_attention_layernorm", "ln_2"},
                                  Gpt2Module{"mlp.up_proj", "mlp.c_fc", true},
                                  Gpt2Module{"mlp.down_proj", "mlp.c_proj", true},
                                  Gpt2Module{"model.norm", "ln_f"}};

TensorPlace gpt2_place(const Parameter& parameter, const std::string& prefix) {
  const NameParts parts = parts_of(parameter.name);
  if (parts.module == "lm_head") return {.name = parameter.name, .shape = shape_of(parameter)};
  const auto* const module = std::ranges::find(gpt2_modules, parts.module, &Gpt2Module::ours);
  ensure(module != gpt2_modules.end(), "every module of GPT-2 has a name in transformers");
  TensorPlace place;
  place.name =
      prefix + (parts.layer.empty() ? "" : "h." + parts.layer + ".") + std::string(module->theirs) + "." + parts.kind;
  place.shape = shape_of(parameter);
  const std::int64_t out = place.shape.front();
  if (module->transposed && parts.kind == "weight") {
    std::swap(place.shape[0], place.shape[1]);
    place.form = TensorPlace::Form::transposed;
  }
  if (module->theirs == fused_attention) {
    place.first = module->part * out;
    place.shape.back() = 3 * out;
  }
  return place;
}

/// Where a model whose projections are joined holds a parameter: rows of q, k and v, or of gate and up, one above the
/// other.
TensorPlace joined_place(const Parameter& parameter, const ModelConfig& model) {
  struct Part {
    std::string_view ours, joined;
    std::int64_t rows;
  };
  const std::int64_t queries = model.num_attention_heads * model.head_dim;
  const std::int64_t keys = model.num_key_value_heads * model.head_dim;
  const std::array<Part, 5> all{{{"self_attn.q_proj", "self_attn.qkv_proj", queries},
                                 {"self_attn.k_proj", "self_attn.qkv_proj", keys},
                                 {"self_attn.v_proj", "self_attn.qkv_proj", keys},
                                 {"mlp.gate_proj", "mlp.gate_up_proj", model.intermediate_size},
                                 {"mlp.up_proj", "mlp.gate_up_proj", model.intermediate_size}}};
  TensorPlace place{.name = parameter.name, .shape = shape_of(parameter)};
  const NameParts parts = parts_of(parameter.name);
  const auto* const own = std::ranges::find(all, parts.module, &Part::ours);
  if (own == all.end()) return place;
  place.name = std::string(layer_prefix) + parts.layer + "." + std::string(own->joined) + "." + parts.kind;
  place.shape[0] = 0;
  for (const Part& part : all) {
    if (part.joined != own->joined) continue;
    if (&part < own) place.first += part.rows * place.shape[1];
    place.shape[0] += part.rows;
  }
  return place;
}

}  // namespace

Places hugging_face_places(const ModelConfig& model, bool prefixed) {
  const Family& family = family_of(model.architecture);
  if (family.joined) return [model](const Parameter& parameter) { return joined_place(parameter, model); };
  if (family.rotary) {
    return [](const Parameter& parameter) { return TensorPlace{.name = parameter.name, .shape = shape_of(parameter)}; };
  }
  return [prefix = std::string(prefixed ? "transformer." : "")](const Parameter& parameter) {
    return gpt2_place(parameter, prefix);
  };
}

bool is_constant_buffer(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

std::vector<const Parameter*> in_class_order(const ModelConfig& model, const ParameterTable& table) {
  std::vector<const Parameter*> parameters;
  for (const Parameter& parameter : table.all()) parameters.push_back(&parameter);
  if (!family_of(model.architecture).rotary) return parameters;
  // Buckets ascend: embedding, layers, final norm and head. The norms of a layer come after all else of it.
  std::ranges::stable_sort(parameters, {}, [](const Parameter* parameter) {
    return std::pair(parameter->bucket, parameter->name.find("layernorm") != std::string::npos);
  });
  return parameters;
}

}  // namespace ringtrain
