// Which modules of a model have adapters, as PEFT's adapter_config.json says it: by a list of names or ends of names,
// of some layers alone, or by a regular expression. PEFT resolves that against the names of a model when it loads; so
// does this, and lora.targets then holds names.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "layers/model_spec.h"
#include "train/models/json_keys.h"

namespace ringtrain {

struct PeftTargets {
  std::vector<std::string> names;                // or ends of names, sorted; or
  std::string pattern;                           // for whole names; "": there is none
  std::optional<std::set<std::int64_t>> layers;  // of which those that an end names have adapters; nothing: of all
};

/// Reads target_modules, layers_to_transform and layers_pattern. Throws Error(checkpoint) that names the key for what
/// PEFT refuses, and for a pattern that Python and PCRE2 may read in different ways.
PeftTargets read_targets(JsonKeys& keys);

/// Returns what lora.targets has for them: a projection's name where all layers have its adapter, else whole names.
/// Throws Error(checkpoint) that begins with path: a name that is none of the model's projections, a pattern that
/// matches none of them or a matrix outside of the layers, or one that takes too many steps.
std::vector<std::string> resolved(const PeftTargets& targets, const ModelSpec& spec, const std::string& path);

}  // namespace ringtrain
