// What a model is made of, as traits. model_spec() is the only place that knows architectures; layers, memory plan,
// parameter table and checks of a config ask the spec it returns. Pure values, no communication.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/config/lora_config.h"
#include "framework/config/rope_scaling.h"
#include "framework/sequence/visibility.h"

namespace ringtrain {

class ConfigProblems;  // framework/config/config_problems.h
struct Config;         // framework/config/config.h
struct ModelConfig;

enum class NormKind { rms_norm, layer_norm };  // layer_norm has a mean and a bias
enum class Activation { silu, gelu };          // gelu: its tanh form
enum class Positions { rope, learned, none };

/// Which projections add a bias.
struct Biases {
  bool query_key_value = false;
  bool attention_output = false;
  bool feedforward = false;
};

/// What may differ from layer to layer.
struct LayerSpec {
  AttentionMask mask;
  bool rope = false;  // queries and keys are rotated
};

/// Sizes have the names of the config's keys.
struct ModelSpec {
  std::string architecture;  // its name, for messages and manifests alone
  std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0;
  std::int64_t num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;

  NormKind norm = NormKind::rms_norm;
  double norm_eps = 0;          // of every norm
  bool query_key_norm = false;  // an RMSNorm over each head of queries and keys, before they are rotated
  Biases biases;
  Biases optional_biases;         // those that checkpoints of the architecture have or have not, as a config says
  bool gated_feedforward = true;  // down(act(gate(x)) * up(x)), else down(act(up(x)))
  Activation activation = Activation::silu;
  Positions positions = Positions::rope;
  std::int64_t max_position_embeddings = 0;  // rows of the table of learned positions
  double rope_theta = 0;
  RopeScalingConfig rope_scaling;
  bool tied_head = true;  // the head's matrix is the token embedding
  double initializer_range = 0;
  bool scaled_residual_init = false;  // what adds to the residual stream starts smaller by sqrt(2 * layers)
  std::vector<LayerSpec> layers;
  LoraConfig lora;  // adapters beside frozen weights

  std::int64_t num_hidden_layers() const { return std::ssize(layers); }
};

/// Returns which query may see which key in every layer of a model.
AttentionMask attention_mask(const ModelConfig& config);

/// Returns the spec of a resolved config (head_dim and num_key_value_heads set). Calls check_spec.
ModelSpec model_spec(const ModelConfig& config);

/// Throws Error(usage), one sentence, if the layers cannot compute this combination of traits.
void check_spec(const ModelSpec& spec);

/// Adds a problem for every key of a config that its architecture cannot use. Keys that already have a problem are left
/// alone.
void check_model_keys(const Config& config, ConfigProblems& problems);

}  // namespace ringtrain
