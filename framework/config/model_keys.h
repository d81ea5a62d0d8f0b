// Distinguishes keys of the section model that define the weights from keys that only say how the weights are used.
#pragma once

#include <array>
#include <string_view>

namespace ringtrain {

/// Keys, or sections of keys, that can change without making weights unfit for the model: scaling and base of rotary
/// positions, lengths, window, the norms' epsilon, and how new weights are drawn.
inline constexpr std::array<std::string_view, 15> free_with_weights{
    "model.rope_scaling",         "model.rope_theta",          "model.sliding_window",
    "model.layer_types",          "model.layer_positions",     "model.sliding_rope_theta",
    "model.attention_softcap",    "model.final_softcap",       "model.query_pre_attn_scalar",
    "model.rms_norm_eps",         "model.initializer_range",   "model.max_position_embeddings",
    "model.embedding_multiplier", "model.residual_multiplier", "model.logits_scaling"};
/// Returns whether a key is one of them.
bool is_free_with_weights(std::string_view key);

/// Returns whether a key is a section's name, or one of its keys.
bool is_or_below(std::string_view key, std::string_view section);

}  // namespace ringtrain
