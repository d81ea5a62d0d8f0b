// Converts the rotary keys of a Hugging Face config.json, old and new, to model.rope_theta and model.rope_scaling and
// back: rope_parameters (transformers 5), or rope_theta and a rope_scaling with rope_type or type (4 and before).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "train/models/hugging_face_families.h"
#include "train/models/json_keys.h"

namespace ringtrain {

struct ModelConfig;

/// Sets the rotary keys of a model whose max_position_embeddings and windows are set, as transformers 5 would. A
/// section without rope_theta uses the file's own, otherwise the class's default. If the trained length is not given,
/// it is max_position_embeddings, and a log says so. A class whose layers with a window rotate differently has a
/// section for each kind of layer, or an older file's keys (rope_local_base_freq). Throws Error(checkpoint), also if
/// old and new keys of one file contradict each other.
void read_rope(JsonKeys& keys, const Family& family, ModelConfig& model, std::vector<std::string>& logs);

/// Adds rope_parameters, rope_theta, and rope_scaling in the class's form. Requires a type other than ntk.
void write_rope(const ModelConfig& model, const Family& family, nlohmann::json& json);

}  // namespace ringtrain
