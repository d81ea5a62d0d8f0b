// The rotary keys of a Hugging Face config.json, old and new: rope_parameters (transformers 5), or rope_theta beside
// rope_scaling with rope_type or type (4 and before), to model.rope_theta and model.rope_scaling and back.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/config/config.h"
#include "train/models/json_keys.h"

namespace ringtrain {

/// Sets rope_theta and rope_scaling of a model whose max_position_embeddings is set, as transformers 5 would: what
/// stands in the section goes before the file's own rope_theta, and that before theta, the class's default. Where the
/// trained length is not given it is max_position_embeddings, which a log says. Throws Error(checkpoint).
void read_rope(JsonKeys& keys, double theta, ModelConfig& model, std::vector<std::string>& logs);

/// Adds rope_parameters, rope_theta and rope_scaling.
void write_rope(const ModelConfig& model, nlohmann::json& json);

}  // namespace ringtrain
