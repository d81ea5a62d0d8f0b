// What a model is made of, as traits. Only model_spec() knows architectures; layers, the memory plan, the parameter
// table, and the checks of a config ask the spec that it returns. Pure values, no communication.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/config/lora_config.h"
#include "framework/config/rope_scaling.h"
#include "framework/sequence/visibility.h"
#include "kernels/activation.h"

namespace ringtrain {

class ConfigProblems;   // framework/config/config_problems.h
struct Config;          // framework/config/config.h
struct AttentionShape;  // kernels/attention.h
struct ModelConfig;

enum class NormKind { rms_norm, layer_norm };  // layer_norm has a mean and a bias
enum class Positions { rope, learned, none };

/// Which projections add a bias.
struct Biases {
  bool query_key_value = false;
  bool attention_output = false;
  bool feedforward = false;
  friend bool operator==(const Biases&, const Biases&) = default;
};

/// An RMSNorm of queries and of keys, before they are rotated: per head, or over all heads together.
enum class QueryKeyNorm { none, head, whole };

/// A norm: x / rms(x) or (x - mean) / std, times its weight, or 1 + its weight if unit_offset.
struct NormSpec {
  NormKind kind = NormKind::rms_norm;
  double eps = 0;
  bool unit_offset = false;
  friend bool operator==(const NormSpec&, const NormSpec&) = default;
};

/// Frequencies of rotary positions.
struct RopeSpec {
  double theta = 0;
  RopeScalingConfig scaling;
  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

/// What may differ from layer to layer.
struct LayerSpec {
  AttentionMask mask;
  bool rope = false;    // whether queries and keys are rotated
  int frequencies = 0;  // by which of the model's ropes
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

/// A mask, and the layers that have it, in ascending order.
struct MaskedLayers {
  AttentionMask mask;
  std::vector<std::int64_t> layers;
};

/// Sizes have the names of the config's keys.
struct ModelSpec {
  std::string architecture;  // its name, only for messages and manifests
  std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0;
  std::int64_t num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;

  NormSpec norm;            // every norm of the model
  bool norm_before = true;  // whether a norm precedes each half of a block
  bool norm_after = false;  // whether a norm follows each half, before the residual sum
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  double attention_scale = 0;    // of scores
  double attention_softcap = 0;  // c above 0: a scaled score s becomes c tanh(s / c) before the mask
  bool attention_sinks = false;  // each head has a learned score without a value: its weight is dropped
  double embedding_factor = 1;   // of rows of the token table
  double residual_factor = 1;    // of what a block's half adds to the residual stream
  double logit_factor = 1;       // of logits,
  double final_softcap = 0;      // and then a softcap, as of scores
  Biases biases;
  Biases optional_biases;         // those that only some checkpoints of the architecture have, as a config says
  bool gated_feedforward = true;  // down(act(gate(x)) * up(x)), otherwise down(act(up(x)))
  Activation activation = Activation::silu;
  Positions positions = Positions::rope;
  std::int64_t max_position_embeddings = 0;  // rows of the table of learned positions
  std::vector<RopeSpec> ropes;               // of rotary positions; each layer chooses one
  bool tied_head = true;                     // the head's matrix is the token embedding
  double initializer_range = 0;
  bool scaled_residual_init = false;  // weights that add to the residual stream start smaller by sqrt(2 * layers)
  std::vector<LayerSpec> layers;
  LoraConfig lora;  // adapters of frozen weights

  /// Returns the number of layers.
  std::int64_t num_hidden_layers() const { return std::ssize(layers); }
  /// Returns the spec of the norm of queries or keys, which has no mean and no bias.
  NormSpec query_key_norm_spec() const { return {NormKind::rms_norm, norm.eps, norm.unit_offset}; }
  /// Returns how many elements the norm of `heads` heads' queries or keys covers at a time.
  std::int64_t query_key_norm_width(std::int64_t heads) const {
    return query_key_norm == QueryKeyNorm::whole ? heads * head_dim : head_dim;
  }
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

/// Returns the distinct masks, each with its layers, in the order of their first layers.
std::vector<MaskedLayers> layers_by_mask(const std::vector<LayerSpec>& layers);
/// Returns the same for a config's model.
std::vector<MaskedLayers> layers_by_mask(const ModelConfig& config);

/// Returns the attention shape of a layer over one sequence.
AttentionShape attention_shape(const ModelSpec& spec, std::int64_t layer);

/// Returns the number whose square root divides attention's scores.
double score_divisor(const ModelConfig& config);

/// Returns the spec of a resolved config (with head_dim and num_key_value_heads set). Calls check_spec.
ModelSpec model_spec(const ModelConfig& config);

/// Throws Error(usage), with one message, if the layers cannot compute this combination of traits, or a GPU its sizes.
void check_spec(const ModelSpec& spec, bool on_gpu = false);

/// Adds a problem for every key of a config that its architecture cannot use. Skips keys that already have a problem.
void check_model_keys(const Config& config, ConfigProblems& problems);

}  // namespace ringtrain
