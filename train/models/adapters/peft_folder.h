// A folder of adapters in PEFT's format: adapter_config.json and adapter_model.safetensors, and the name of the base.
// What is trained in addition to adapters is PEFT's modules_to_save: whole modules that replace the base's. Supports
// the classes whose projections have our names: all except GPT-2.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "framework/config/read_config.h"
#include "train/models/model_source.h"

namespace ringtrain {

inline constexpr const char* adapter_config_file = "adapter_config.json";
inline constexpr const char* adapter_weights_file = "adapter_model.safetensors";

/// Returns whether a folder has an adapter_config.json, and so should be read as adapters.
bool is_peft_folder(const std::string& folder);

/// Opens adapters and their base: base_model_name_or_path as a path, or a sibling of the folder with its last name.
/// Throws Error(checkpoint), which names the file and the key, if there is no base, or if the layers cannot compute
/// this kind of adapter.
ModelSource open_peft_folder(const std::string& folder);

/// Returns the modules that a folder of these adapters holds whole. Throws Error(usage) if PEFT cannot hold them.
std::set<std::string> modules_to_save(const ModelSource& source);
/// Returns whether a parameter belongs to an adapter or to one of the modules.
bool in_peft_folder(const Parameter& parameter, const std::set<std::string>& modules);
/// Returns the location of a parameter in the folder.
TensorLocation peft_location(const Parameter& parameter);
/// Returns the keys that a folder of these adapters loses: it names the base, and cannot express a model that computes
/// something else. before: the base's values; after: those with which the adapters were trained.
std::vector<ConfigDifference> lost_in_peft_folder(const ModelSource& source);
/// Returns the text of adapter_config.json.
std::string write_adapter_config(const ModelSource& source);

}  // namespace ringtrain
