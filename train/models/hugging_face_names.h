// Names and layout of weights in a Hugging Face folder, by class (transformers, models/*/modeling_*.py). All classes
// except GPT-2 have our names; Phi-3 stacks q, k, and v, and gate and up, in one tensor. GPT-2 has different names,
// concatenates q, k, and v in one tensor, and stores matrices as [in, out]. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "train/models/placed_weights.h"

namespace ringtrain {

struct ModelConfig;

/// Returns the locations of a model's parameters. prefixed: whether GPT-2's names begin with "transformer.", as in all
/// files except the original one of 2019.
TensorLocations hugging_face_locations(const ModelConfig& model, bool prefixed = true);

/// Returns whether a tensor is a constant that old files hold in addition to the weights, and that nobody needs: rotary
/// frequencies, causal masks.
bool is_constant_buffer(std::string_view name);

/// Returns the parameters of a model in the order of its class: the order in which shards are filled.
std::vector<const Parameter*> in_class_order(const ModelConfig& model, const ParameterTable& table);

}  // namespace ringtrain
