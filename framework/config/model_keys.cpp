#include "framework/config/model_keys.h"

#include <algorithm>
#include <array>

namespace ringtrain {

bool is_or_below(std::string_view key, std::string_view section) {
  return key == section || (key.starts_with(section) && key[section.size()] == '.');
}

bool is_free_with_weights(std::string_view key) {
  constexpr std::array<std::string_view, 15> free{
      "model.rope_scaling",         "model.rope_theta",          "model.sliding_window",
      "model.layer_types",          "model.layer_positions",     "model.sliding_rope_theta",
      "model.attention_softcap",    "model.final_softcap",       "model.query_pre_attn_scalar",
      "model.rms_norm_eps",         "model.initializer_range",   "model.max_position_embeddings",
      "model.embedding_multiplier", "model.residual_multiplier", "model.logits_scaling"};
  return std::ranges::any_of(free, [&](std::string_view section) { return is_or_below(key, section); });
}

}  // namespace ringtrain
