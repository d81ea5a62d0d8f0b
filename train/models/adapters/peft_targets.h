// Which modules of a model have adapters, as PEFT's adapter_config.json expresses it: by a list of names or suffixes of
// names, possibly only in some layers, or by a regular expression. PEFT resolves that against the names of a model when
// it loads; this file does the same, and lora.targets then holds names.
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
  std::vector<std::string> names;                // or suffixes of names, sorted; or
  std::string pattern;                           // for whole names; "": no pattern
  std::optional<std::set<std::int64_t>> layers;  // the layers in which suffixes name adapters; empty: all layers
};

/// Reads target_modules, layers_to_transform, and layers_pattern. Throws Error(checkpoint), which names the key, for
/// what PEFT refuses, and for a pattern that Python and PCRE2 may read differently.
PeftTargets read_targets(JsonKeys& keys);

/// Returns the same targets in the form of lora.targets: a projection's name if all layers have its adapter, otherwise
/// whole names. Throws Error(checkpoint), which begins with path, for a name that is not one of the model's
/// projections, and for a pattern that matches none of them, matches a matrix outside the layers, or takes too many
/// steps.
std::vector<std::string> resolved(const PeftTargets& targets, const ModelSpec& spec, const std::string& path);

}  // namespace ringtrain
