#include "layers/model_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/config/config.h"
#include "framework/config/config_problems.h"
#include "framework/config/model_config.h"
#include "framework/error.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"

namespace ringtrain {

namespace {

/// Returns the traits of an architecture. This is the only such switch: an architecture that is missing here does not
/// compile.
ModelSpec traits_of(const ModelConfig& config) {
  ModelSpec spec;
  spec.architecture = name_of(config.architecture);
  switch (config.architecture) {
    case Architecture::llama:    // Touvron et al., 2023
    case Architecture::smollm3:  // Bakouch et al., 2025: Llama, with no rotation in every fourth layer
    case Architecture::granite:  // Granite Team, "Granite 3.0", 2024, section 3: Llama, with factors on its streams
      spec.optional_biases = {.query_key_value = true, .attention_output = true, .feedforward = true};
      return spec;
    case Architecture::mistral:  // Jiang et al., 2023: Llama, mostly with a sliding window, which has its own key
    case Architecture::phi3:     // Abdin et al., "Phi-3", 2024, section 2: Llama, whose files combine projections
      return spec;
    case Architecture::gpt2:  // Radford et al., 2019
      spec.norm.kind = NormKind::layer_norm;
      spec.biases = {.query_key_value = true, .attention_output = true, .feedforward = true};
      spec.gated_feedforward = false;
      spec.activation = Activation::gelu;
      spec.positions = Positions::learned;
      spec.scaled_residual_init = true;
      return spec;
    case Architecture::qwen2:  // Yang et al., 2024, section 2.2
      spec.biases.query_key_value = true;
      return spec;
    case Architecture::qwen3:  // Yang et al., 2025, section 2
      spec.query_key_norm = QueryKeyNorm::head;
      spec.optional_biases = {.query_key_value = true, .attention_output = true};
      return spec;
    case Architecture::olmo2:  // Walsh et al., "2 OLMo 2 Furious", 2025, section 2.2
    case Architecture::olmo3:  // the same, with some layers that have a window
      spec.norm_before = false;
      spec.norm_after = true;
      spec.query_key_norm = QueryKeyNorm::whole;
      spec.optional_biases = {.query_key_value = true, .attention_output = true};
      return spec;
    case Architecture::gemma3_text:  // Kamath et al., "Gemma 3", 2025, section 2
      spec.query_key_norm = QueryKeyNorm::head;
      [[fallthrough]];
    case Architecture::gemma2:  // Riviere et al., "Gemma 2", 2024, section 2
      spec.norm.unit_offset = true;
      spec.norm_after = true;
      spec.activation = Activation::gelu;
      spec.embedding_factor = std::sqrt(static_cast<double>(config.hidden_size));
      spec.optional_biases = {.query_key_value = true, .attention_output = true};
      return spec;
  }
  fail(ExitCode::internal, "model.architecture holds a value that names no architecture");
}

bool is_sliding(const ModelConfig& config, std::int64_t layer) {
  if (config.sliding_window == 0) return false;
  const std::vector<LayerType>& types = config.layer_types;
  return types.empty() || types[static_cast<std::size_t>(layer) % types.size()] == LayerType::sliding_attention;
}

bool rotates(const ModelConfig& config, std::int64_t layer) {
  const std::vector<LayerPositions>& all = config.layer_positions;
  return all.empty() || all[static_cast<std::size_t>(layer) % all.size()] == LayerPositions::rope;
}

std::vector<LayerSpec> layer_specs(const ModelConfig& config, Positions positions) {
  std::vector<LayerSpec> layers;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const bool sliding = is_sliding(config, layer);
    layers.push_back({.mask = {.causal = true, .window = sliding ? config.sliding_window : 0},
                      .rope = positions == Positions::rope && rotates(config, layer),
                      .frequencies = sliding && config.sliding_rope_theta > 0 ? 1 : 0});
  }
  return layers;
}

}  // namespace

std::vector<MaskedLayers> layers_by_mask(const std::vector<LayerSpec>& layers) {
  std::vector<MaskedLayers> all;
  for (std::int64_t layer = 0; layer < std::ssize(layers); ++layer) {
    const AttentionMask& mask = layers[static_cast<std::size_t>(layer)].mask;
    auto found = std::ranges::find(all, mask, &MaskedLayers::mask);
    if (found == all.end()) found = all.insert(found, {.mask = mask, .layers = {}});
    found->layers.push_back(layer);
  }
  return all;
}

std::vector<MaskedLayers> layers_by_mask(const ModelConfig& config) {
  return layers_by_mask(layer_specs(config, Positions::none));
}

AttentionShape attention_shape(const ModelSpec& spec, std::int64_t layer) {
  return {.B = 1,
          .H = spec.num_attention_heads,
          .G = spec.num_key_value_heads,
          .D = spec.head_dim,
          .scale = spec.attention_scale,
          .mask = spec.layers[layer].mask,
          .softcap = spec.attention_softcap};
}

double score_divisor(const ModelConfig& config) {
  return config.query_pre_attn_scalar > 0 ? config.query_pre_attn_scalar : static_cast<double>(config.head_dim);
}

ModelSpec model_spec(const ModelConfig& config) {
  if (config.head_dim <= 0 || config.num_key_value_heads <= 0) {
    fail(ExitCode::usage,
         "the model's head_dim is {} and its num_key_value_heads {}: read_config() and checked_config() "
         "(framework/config/read_config.h) fill in those that follow from other keys",
         config.head_dim, config.num_key_value_heads);
  }
  ModelSpec spec = traits_of(config);
  spec.vocab_size = config.vocab_size;
  spec.hidden_size = config.hidden_size;
  spec.intermediate_size = config.intermediate_size;
  spec.num_attention_heads = config.num_attention_heads;
  spec.num_key_value_heads = config.num_key_value_heads;
  spec.head_dim = config.head_dim;
  spec.norm.eps = config.rms_norm_eps;
  spec.attention_scale = 1.0 / std::sqrt(score_divisor(config));
  spec.attention_softcap = config.attention_softcap;
  spec.attention_sinks = config.attention_sinks;
  if (config.embedding_multiplier > 0) spec.embedding_factor = config.embedding_multiplier;
  spec.residual_factor = config.residual_multiplier;
  spec.logit_factor = 1 / config.logits_scaling;
  spec.final_softcap = config.final_softcap;
  spec.max_position_embeddings = config.max_position_embeddings;
  if (spec.positions == Positions::rope) {
    spec.ropes.push_back({config.rope_theta, config.rope_scaling});
    if (config.sliding_rope_theta > 0) spec.ropes.push_back({config.sliding_rope_theta, {}});
  }
  if (config.attention_bias) spec.biases.query_key_value = spec.biases.attention_output = true;
  if (config.mlp_bias) spec.biases.feedforward = true;
  spec.tied_head = config.tie_word_embeddings;
  spec.initializer_range = config.initializer_range;
  spec.layers = layer_specs(config, spec.positions);
  spec.lora = config.lora;
  check_spec(spec);
  return spec;
}

void check_spec(const ModelSpec& spec, bool on_gpu) {
  const auto refuse_if = [&](bool refused, const std::string& what) {
    if (refused) fail(ExitCode::usage, "a model of architecture {} cannot be computed: {}", spec.architecture, what);
  };
  const auto any_layer = [&](auto&& holds) { return std::any_of(spec.layers.begin(), spec.layers.end(), holds); };
  const auto rotates = [](const LayerSpec& layer) { return layer.rope; };
  const auto turns_by_nothing = [&](const LayerSpec& layer) {
    return layer.rope && (layer.frequencies < 0 || layer.frequencies >= std::ssize(spec.ropes));
  };
  refuse_if(spec.layers.empty(), "it needs at least one layer");
  refuse_if(!spec.norm_before && !spec.norm_after, "attention and feedforward each need a norm before or after them");
  refuse_if(spec.positions == Positions::learned && spec.max_position_embeddings < 1,
            "learned positions need a table of at least one row (model.max_position_embeddings)");
  refuse_if(spec.positions != Positions::rope && any_layer(rotates),
            "a layer rotates queries and keys, but positions are not rotary");
  refuse_if(any_layer(rotates) && spec.head_dim % 2 != 0,
            "rotary positions rotate pairs of elements, so model.head_dim must be even");
  refuse_if(any_layer(turns_by_nothing), "a layer uses rotary frequencies that the model does not define");
  refuse_if(spec.norm.kind == NormKind::layer_norm && (spec.norm.unit_offset || spec.norm_after),
            "a LayerNorm must come before attention and feedforward, and not add 1 to its weight");
  refuse_if(!(spec.attention_scale > 0), "the scale of attention scores must be above 0");
  refuse_if(!(spec.attention_softcap >= 0) || !(spec.final_softcap >= 0), "a softcap must be above 0, or 0 for none");
  refuse_if(!(spec.residual_factor > 0) || !(spec.logit_factor > 0) || !(spec.embedding_factor > 0),
            "the factors of the embedding, residual stream and logits must be above 0");
  refuse_if(spec.residual_factor != 1 && spec.norm_after,
            "a norm after attention and feedforward excludes model.residual_multiplier");
  refuse_if(on_gpu && spec.head_dim > largest_gpu_head,
            fmt::format("on a GPU, model.head_dim must be at most {}", largest_gpu_head));
  const std::int64_t C = spec.hidden_size, queries = spec.num_attention_heads * spec.head_dim;
  const std::int64_t width = std::max({spec.vocab_size, spec.intermediate_size, queries});
  refuse_if(on_gpu && width * C > most_gpu_weights,
            fmt::format("on a GPU, a weight has at most {} elements, not {} x {}", most_gpu_weights, width, C));
}

namespace {

void check_rope_keys(const ModelSpec& traits, const ModelConfig& model, ConfigProblems& problems) {
  if (traits.positions == Positions::rope) {
    if (problems.clean(
            {"model.hidden_size", "model.num_attention_heads", "model.num_key_value_heads", "model.head_dim"}) &&
        model.head_dim % 2 != 0) {
      problems.add("model.head_dim", fmt::format("is {} (default: hidden_size / num_attention_heads = {} / {}), but "
                                                 "rotary embedding rotates pairs of elements: it must be even",
                                                 model.head_dim, model.hidden_size, model.num_attention_heads));
    }
    return;
  }
  if (problems.clean({"model.rope_theta"}) && model.rope_theta != ModelConfig{}.rope_theta) {
    problems.add("model.rope_theta",
                 "{} has no effect with model.architecture {}, which has no rotary positions; leave it out",
                 model.rope_theta, traits.architecture);
  }
  if (problems.clean({"model.rope_scaling.type"}) && model.rope_scaling.type != RopeType::none) {
    problems.add("model.rope_scaling.type", "model.architecture {} has no rotary positions to scale; leave it out",
                 traits.architecture);
  }
}

/// Keys that say how layers differ.
void check_layer_keys(const ModelSpec& traits, const ModelConfig& model, ConfigProblems& problems) {
  if (!problems.clean({"model.num_hidden_layers", "model.sliding_window", "model.layer_types", "model.layer_positions",
                       "model.sliding_rope_theta"})) {
    return;
  }
  const auto check_length = [&](const char* key, std::size_t size) {
    if (std::cmp_less_equal(size, model.num_hidden_layers)) return;
    problems.add(key, "has {} entries, but there are model.num_hidden_layers = {} layers", size,
                 model.num_hidden_layers);
  };
  check_length("model.layer_types", model.layer_types.size());
  check_length("model.layer_positions", model.layer_positions.size());
  const bool any_sliding = std::ranges::count(model.layer_types, LayerType::sliding_attention) > 0;
  if (any_sliding && model.sliding_window == 0) {
    problems.add("model.layer_types", "has sliding_attention, which needs model.sliding_window");
  }
  if (!model.layer_types.empty() && !any_sliding && model.sliding_window > 0) {
    problems.add("model.layer_types",
                 "has no sliding_attention, so model.sliding_window = {} has no effect; leave one of them out",
                 model.sliding_window);
  }
  const bool rotary = traits.positions == Positions::rope;
  if (!model.layer_positions.empty() && !rotary) {
    problems.add("model.layer_positions", "model.architecture {} has no rotary positions; leave it out",
                 traits.architecture);
  }
  if (model.sliding_rope_theta == 0) return;
  if (!rotary || model.sliding_window == 0) {
    problems.add("model.sliding_rope_theta",
                 "{} has no effect: no layer has both a window and rotary positions; leave it out",
                 model.sliding_rope_theta);
  } else if (model.sliding_rope_theta <= 1) {
    problems.add("model.sliding_rope_theta", "is {}, but must be above 1, or 0", model.sliding_rope_theta);
  }
}

void check_table_keys(const ModelSpec& traits, const Config& config, ConfigProblems& problems) {
  const std::int64_t rows = config.model.max_position_embeddings;
  if (!problems.clean({"model.max_position_embeddings"})) return;
  if (traits.positions != Positions::learned) return;
  if (problems.clean({"training.seq_len"}) && rows < config.training.seq_len) {
    problems.add("model.max_position_embeddings",
                 "{}'s table of {} positions is shorter than training.seq_len = {}; make it at least that",
                 traits.architecture, rows, config.training.seq_len);
  }
  const EvaluationConfig& evaluation = config.evaluation;
  if (evaluation.interval > 0 && problems.clean({"evaluation.context_lengths"}) &&
      !evaluation.context_lengths.empty() && evaluation.context_lengths.back() > rows) {
    problems.add("evaluation.context_lengths",
                 "{} is beyond {}'s table of model.max_position_embeddings = {} positions",
                 evaluation.context_lengths.back(), traits.architecture, rows);
  }
}

void check_bias_keys(const ModelSpec& traits, const ModelConfig& model, ConfigProblems& problems) {
  const auto check = [&](const char* key, bool asked, bool possible) {
    if (!asked || possible || !problems.clean({key})) return;
    problems.add(key, "true has no effect with model.architecture {}, whose biases are fixed; leave it out",
                 traits.architecture);
  };
  check("model.attention_bias", model.attention_bias, traits.optional_biases.query_key_value);
  check("model.mlp_bias", model.mlp_bias, traits.optional_biases.feedforward);
}

}  // namespace

void check_model_keys(const Config& config, ConfigProblems& problems) {
  if (!problems.clean({"model.architecture"})) return;
  const ModelSpec traits = traits_of(config.model);
  check_rope_keys(traits, config.model, problems);
  check_layer_keys(traits, config.model, problems);
  check_table_keys(traits, config, problems);
  check_bias_keys(traits, config.model, problems);
}

}  // namespace ringtrain
