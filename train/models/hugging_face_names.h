// Names and arrangement of weights in a Hugging Face folder, by class (transformers, models/*/modeling_*.py). All but
// GPT-2 have ours; Phi-3 has q, k and v, and gate and up, one above the other in one tensor. GPT-2 has names of its
// own, q, k and v side by side in one tensor, and matrices [in, out]. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "train/models/placed_weights.h"

namespace ringtrain {

struct ModelConfig;

/// Returns where the parameters of a model lie. prefixed: GPT-2's names begin with "transformer.", as all files have it
/// but the original one of 2019.
TensorLocations hugging_face_locations(const ModelConfig& model, bool prefixed = true);

/// Returns whether a tensor is a constant that old files hold beside the weights, and that nobody needs: rotary
/// frequencies, causal masks.
bool is_constant_buffer(std::string_view name);

/// Returns the parameters of a model in the order in which its class has them: that in which shards are filled.
std::vector<const Parameter*> in_class_order(const ModelConfig& model, const ParameterTable& table);

}  // namespace ringtrain
