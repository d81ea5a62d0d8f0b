// The classes of transformers whose models are read and written here: the names of their keys, their defaults for keys
// that a file does not have, and what they can express. Only this table knows them: the reader, the writer, and the
// names of tensors use it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "framework/config/choices.h"
#include "framework/error.h"

namespace ringtrain {

/// How a class says which layers have a sliding window.
enum class WindowKeys {
  none,       // it has no window
  length,     // sliding_window, in all layers
  layers,     // use_sliding_window and sliding_window, from layer max_window_layers on, or as layer_types says
  unrotated,  // the same, otherwise in those of no_rope_layers, which do not rotate
  pattern,    // sliding_window, in all layers except every window_pattern-th, or as layer_types says
};

/// The class's names for the sizes of a model.
struct SizeKeys {
  const char *hidden_size, *layers, *heads, *intermediate_size, *positions, *eps;
};
inline constexpr SizeKeys llama_keys{"hidden_size",       "num_hidden_layers",       "num_attention_heads",
                                     "intermediate_size", "max_position_embeddings", "rms_norm_eps"};
inline constexpr SizeKeys gpt2_keys{"n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon"};

struct Family {
  /// The class's defaults for sizes; 0: 4 hidden_size, as many as heads, hidden_size / heads.
  struct Sizes {
    std::int64_t vocab_size, hidden_size, intermediate_size, layers, heads, key_value_heads, head_dim, positions;
  };

  Architecture architecture;  // its name is the class's model_type
  const char* name;           // of the class
  Sizes sizes;
  const SizeKeys& keys = llama_keys;
  WindowKeys window = WindowKeys::none;
  std::int64_t absent_window = 4096;  // default of sliding_window; 0: none
  std::int64_t window_pattern = 0;    // of WindowKeys::pattern,
  bool pattern_key = false;           // whether the class reads another one from sliding_window_pattern
  double theta = 10000;               // rope_theta
  // original_max_position_embeddings, and longrope only; 0: as max_position_embeddings
  std::int64_t trained_length = 0;
  double sliding_theta = 0;  // of layers with a window, whose rotary keys are then separate; 0: one theta for all
  double eps = 1e-6;
  bool tied = false;        // tie_word_embeddings
  double query_scalar = 0;  // query_pre_attn_scalar; 0: the class has no such key
  // Defaults of attn_logit_softcapping and final_logit_softcapping; 0: the class has no such keys
  double attention_softcap = 0, final_softcap = 0;
  bool multipliers = false;  // of attention, embedding, residuals, and logits, as in Granite
  bool joined = false;       // qkv_proj and gate_up_proj: several projections in one tensor
  bool gelu = false;         // hidden_activation is gelu_pytorch_tanh, not hidden_act silu
  bool rotary = true;        // rotary positions, groups of heads, a gated feedforward; otherwise everything as in GPT-2
  bool attention_bias = true, mlp_bias = false;  // whether the class has a key for it
  bool any_head_dim = true;                      // not only hidden_size / heads

  /// Returns whether each of our projections is a separate tensor.
  bool own_projections() const { return rotary && !joined; }
  /// Returns whether the class scales rotary positions only as longrope.
  bool only_longrope() const { return trained_length > 0; }
  /// Returns whether layers with a window have separate rotary keys.
  bool ropes_by_layer() const { return sliding_theta > 0; }
  /// Returns whether older files give these layers' theta, as rope_local_base_freq.
  bool local_base_key() const { return ropes_by_layer() && sliding_theta != theta; }
};

inline constexpr std::array<Family, 12> families{{
    {.architecture = Architecture::llama,
     .name = "LlamaForCausalLM",
     .sizes = {32000, 4096, 11008, 32, 32, 0, 0, 2048},
     .mlp_bias = true,
     .any_head_dim = false},
    {.architecture = Architecture::mistral,
     .name = "MistralForCausalLM",
     .sizes = {32000, 4096, 14336, 32, 32, 8, 0, 131072},
     .window = WindowKeys::length,
     .attention_bias = false},
    {.architecture = Architecture::qwen2,
     .name = "Qwen2ForCausalLM",
     .sizes = {151936, 4096, 22016, 32, 32, 32, 0, 32768},
     .window = WindowKeys::layers,
     .attention_bias = false},
    {.architecture = Architecture::qwen3,
     .name = "Qwen3ForCausalLM",
     .sizes = {151936, 4096, 22016, 32, 32, 32, 128, 32768},
     .window = WindowKeys::layers},
    {.architecture = Architecture::smollm3,
     .name = "SmolLM3ForCausalLM",
     .sizes = {128256, 2048, 11008, 36, 16, 4, 0, 32768},
     .window = WindowKeys::unrotated,
     .theta = 2000000,
     .tied = true,
     .mlp_bias = true},
    {.architecture = Architecture::olmo2,
     .name = "Olmo2ForCausalLM",
     .sizes = {50304, 4096, 11008, 32, 32, 0, 0, 2048},
     .eps = 1e-5},
    {.architecture = Architecture::olmo3,
     .name = "Olmo3ForCausalLM",
     .sizes = {50304, 4096, 11008, 32, 32, 0, 0, 2048},
     .window = WindowKeys::pattern,
     .window_pattern = 4,
     .theta = 500000,
     .sliding_theta = 500000,
     .eps = 1e-5},
    {.architecture = Architecture::gemma2,
     .name = "Gemma2ForCausalLM",
     .sizes = {256000, 2304, 9216, 26, 8, 4, 256, 8192},
     .window = WindowKeys::pattern,
     .window_pattern = 2,
     .tied = true,
     .query_scalar = 256,
     .attention_softcap = 50,
     .final_softcap = 30,
     .gelu = true,
     .any_head_dim = false},
    {.architecture = Architecture::phi3,
     .name = "Phi3ForCausalLM",
     .sizes = {32064, 3072, 8192, 32, 32, 0, 0, 4096},
     .window = WindowKeys::length,
     .absent_window = 0,
     .trained_length = 4096,
     .eps = 1e-5,
     .joined = true,
     .attention_bias = false,
     .any_head_dim = false},
    {.architecture = Architecture::granite,
     .name = "GraniteForCausalLM",
     .sizes = {32000, 4096, 11008, 32, 32, 0, 0, 2048},
     .multipliers = true,
     .mlp_bias = true,
     .any_head_dim = false},
    {.architecture = Architecture::gemma3_text,
     .name = "Gemma3ForCausalLM",
     .sizes = {262208, 2304, 9216, 26, 8, 4, 256, 131072},
     .window = WindowKeys::pattern,
     .window_pattern = 6,
     .pattern_key = true,
     .theta = 1000000,
     .sliding_theta = 10000,
     .tied = true,
     .query_scalar = 256,
     .gelu = true,
     .any_head_dim = false},
    {.architecture = Architecture::gpt2,
     .name = "GPT2LMHeadModel",
     .sizes = {50257, 768, 0, 12, 12, 0, 0, 1024},
     .keys = gpt2_keys,
     .eps = 1e-5,
     .tied = true,
     .rotary = false},
}};

/// Returns the family of an architecture. Requires that transformers has it.
inline const Family& family_of(Architecture architecture) {
  const auto* const found = std::ranges::find(families, architecture, &Family::architecture);
  ensure(found != families.end(), "the architecture has a class in transformers");
  return *found;
}

}  // namespace ringtrain
