// The section model of a config, including lora.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/config/choices.h"
#include "framework/config/lora_config.h"
#include "framework/config/rope_scaling.h"

namespace ringtrain {

struct ModelConfig {
  std::string from;           // the model whose sizes and weights these are: a path; "": the keys below say everything
  bool from_scratch = false;  // only the sizes of `from` are used
  Architecture architecture = Architecture::llama;
  std::int64_t vocab_size = 257;
  std::int64_t hidden_size = 256;
  std::int64_t num_hidden_layers = 4;
  std::int64_t num_attention_heads = 4;
  std::int64_t num_key_value_heads = 0;  // 0 in the file: num_attention_heads; resolved by the reader
  std::int64_t head_dim = 0;             // 0 in the file: hidden_size / num_attention_heads; resolved by the reader
  std::int64_t intermediate_size = 768;
  double rope_theta = 500000.0;
  RopeScalingConfig rope_scaling;
  std::int64_t max_position_embeddings =
      0;  // learned positions: rows of their table; rope: the intended length, 0: not given
  std::int64_t sliding_window = 0;
  std::vector<LayerType> layer_types;               // layer i has the (i mod size)-th; empty: all have the window
  std::vector<LayerPositions> layer_positions;      // the same; empty: all rotate
  double sliding_rope_theta = 0;                    // of layers with the window, unscaled; 0: the same as the others
  double query_pre_attn_scalar = 0;                 // 0: head_dim
  double attention_softcap = 0, final_softcap = 0;  // of scores, of logits; 0: none
  bool attention_sinks = false;                     // one learned score per head that takes weight from all others
  double embedding_multiplier = 0;                  // 0: the architecture's default
  double residual_multiplier = 1, logits_scaling = 1;
  double rms_norm_eps = 1.0e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;
  bool attention_bias = false;  // of q, k, v, and o, if the architecture has this choice
  bool mlp_bias = false;        // of gate, up, and down, likewise
  LoraConfig lora;              // the section lora
};

}  // namespace ringtrain
