#include "train/models/hugging_face_names.h"

#include <algorithm>
#include <utility>

#include "framework/config/model_config.h"
#include "train/models/hugging_face_families.h"

namespace ringtrain {

namespace {

constexpr std::string_view layer_prefix = "model.layers.";

/// A class's name for one of our modules, and how it stores the weight.
struct Module {
  std::string_view ours, theirs;
  bool transposed = false;
  std::int64_t rows = 0;  // of a projection stored in one tensor with others, one after another; otherwise 0
};

/// Returns the modules that have other names in a class.
std::vector<Module> modules_of(const ModelConfig& model) {
  const Family& family = family_of(model.architecture);
  const std::int64_t width = model.hidden_size, inner = model.intermediate_size;
  const std::int64_t queries = model.num_attention_heads * model.head_dim;
  const std::int64_t keys = model.num_key_value_heads * model.head_dim;
  if (family.own_projections()) return {};
  if (family.joined) {
    return {{"self_attn.q_proj", "self_attn.qkv_proj", false, queries},
            {"self_attn.k_proj", "self_attn.qkv_proj", false, keys},
            {"self_attn.v_proj", "self_attn.qkv_proj", false, keys},
            {"mlp.gate_proj", "mlp.gate_up_proj", false, inner},
            {"mlp.up_proj", "mlp.gate_up_proj", false, inner}};
  }
  return {{"model.embed_tokens", "wte"},
          {"model.embed_positions", "wpe"},
          {"input_layernorm", "ln_1"},
          {"self_attn.q_proj", "attn.c_attn", true, width},
          {"self_attn.k_proj", "attn.c_attn", true, width},
          {"self_attn.v_proj", "attn.c_attn", true, width},
          {"self_attn.o_proj", "attn.c_proj", true},
          {"post_attention_layernorm", "ln_2"},
          {"mlp.up_proj", "mlp.c_fc", true},
          {"mlp.down_proj", "mlp.c_proj", true},
          {"model.norm", "ln_f"}};
}

/// Our names consist of "model.layers.N." in the layers, a module's name, and ".weight" or ".bias". top, layers: the
/// prefixes of the class's names outside and inside the layers.
TensorLocation tensor_location(const Parameter& parameter, const std::vector<Module>& modules, const std::string& top,
                               const std::string& layers) {
  TensorLocation location{.name = parameter.name, .shape = parameter.shape.dims()};
  const std::size_t dot = parameter.name.rfind('.');
  const std::string module = parameter.name.substr(0, dot), kind = parameter.name.substr(dot);
  const auto found = std::ranges::find_if(modules, [&](const Module& entry) { return module.ends_with(entry.ours); });
  if (found == modules.end()) return location;
  const std::string root = module.substr(0, module.size() - found->ours.size());
  location.name = (root.empty() ? top : layers + root.substr(layer_prefix.size())) + std::string(found->theirs) + kind;
  location.transposed = found->transposed && kind == ".weight";
  if (found->rows > 0) {
    const std::int64_t row = location.transposed || location.shape.size() == 1 ? 1 : location.shape[1];
    location.shape[0] = 0;
    for (auto part = modules.begin(); part != modules.end(); ++part) {
      if (part->theirs != found->theirs) continue;
      if (part < found) location.first += part->rows * row;
      location.shape[0] += part->rows;
    }
  }
  if (location.transposed) std::swap(location.shape[0], location.shape[1]);
  return location;
}

}  // namespace

TensorLocations hugging_face_locations(const ModelConfig& model, bool prefixed) {
  const bool rotary = family_of(model.architecture).rotary;
  const std::string top = prefixed ? "transformer." : "", layers = rotary ? std::string(layer_prefix) : top + "h.";
  return [modules = modules_of(model), top, layers](const Parameter& parameter) {
    return tensor_location(parameter, modules, top, layers);
  };
}

bool is_constant_buffer(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

std::vector<const Parameter*> in_class_order(const ModelConfig& model, const ParameterTable& table) {
  std::vector<const Parameter*> parameters;
  for (const Parameter& parameter : table.all()) parameters.push_back(&parameter);
  if (!family_of(model.architecture).rotary) return parameters;
  // Buckets ascend: embedding, layers, final norm and head. A layer's norms come after everything else in it.
  std::ranges::stable_sort(parameters, {}, [](const Parameter* parameter) {
    return std::pair(parameter->bucket, parameter->name.find("layernorm") != std::string::npos);
  });
  return parameters;
}

}  // namespace ringtrain
