// A folder of adapters as PEFT has it: adapter_config.json beside adapter_model.safetensors, and the name of the base.
// What is trained beside adapters are PEFT's modules_to_save: whole modules, in the place of the base's. Classes whose
// projections have our names: all but GPT-2.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "framework/config/read_config.h"
#include "train/models/model_source.h"

namespace ringtrain {

inline constexpr const char* adapter_config_file = "adapter_config.json";
inline constexpr const char* adapter_weights_file = "adapter_model.safetensors";

/// Returns whether a folder has an adapter_config.json, and so is to be read as adapters.
bool is_peft_folder(const std::string& folder);

/// Opens adapters and their base: base_model_name_or_path as a path, or what has its last name beside the folder.
/// Throws Error(checkpoint) that names the file and the key: there is no base, or the adapters are of a kind that is
/// not computed here.
ModelSource open_peft_folder(const std::string& folder);

/// Returns the modules that a folder of these adapters holds whole. Throws Error(usage) if PEFT cannot hold them.
std::set<std::string> modules_to_save(const ModelSource& source);
/// Returns whether a parameter is an adapter's, or of one of the modules.
bool in_peft_folder(const Parameter& parameter, const std::set<std::string>& modules);
/// Returns the place of a parameter there.
TensorLocation peft_location(const Parameter& parameter);
/// Returns the keys that a folder of these adapters loses: it names the base, and has no place for a model that is
/// computed otherwise. before: what the base has; after: what the adapters were trained with.
std::vector<ConfigDifference> lost_in_peft_folder(const ModelSource& source);
/// Returns the text of adapter_config.json.
std::string write_adapter_config(const ModelSource& source);

}  // namespace ringtrain
