// Which keys of the section model say what weights there are, and which only how they are used.
#pragma once

#include <array>
#include <string_view>

namespace ringtrain {

/// Keys, or sections of keys, after a change of which weights fit a model just as well: scaling and base of rotary
/// positions, lengths, window, the norms' epsilon, how new weights would be drawn.
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
