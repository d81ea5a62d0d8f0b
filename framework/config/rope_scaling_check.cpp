#include "framework/config/rope_scaling_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "framework/config/config.h"
#include "framework/config/config_schema.h"

namespace ringtrain {

namespace {

/// A key of the section, and the types that use it.
struct Use {
  std::string key;
  std::vector<RopeType> types;
};

using enum RopeType;
const std::vector<Use> uses{
    {"model.rope_scaling.factor", {linear, ntk, yarn, llama3, longrope}},
    // linear and ntk do not use it, but readers of the config may.
    {"model.rope_scaling.original_max_position_embeddings", {linear, ntk, yarn, llama3, longrope}},
    {"model.rope_scaling.attention_factor", {yarn, longrope}},
    {"model.rope_scaling.beta_fast", {yarn}},
    {"model.rope_scaling.beta_slow", {yarn}},
    {"model.rope_scaling.mscale", {yarn}},
    {"model.rope_scaling.mscale_all_dim", {yarn}},
    {"model.rope_scaling.truncate", {yarn}},
    {"model.rope_scaling.low_freq_factor", {llama3}},
    {"model.rope_scaling.high_freq_factor", {llama3}},
    {"model.rope_scaling.short_factor", {longrope}},
    {"model.rope_scaling.long_factor", {longrope}},
};

/// Returns "linear, yarn or llama3".
std::string one_of(const std::vector<RopeType>& types) {
  std::string text;
  for (const RopeType& type : types) {
    const char* const joint = &type == &types.front() ? "" : &type == &types.back() ? " or " : ", ";
    text += joint + std::string(name_of(type));
  }
  return text;
}

/// Adds a problem for each key that was set but that the type does not use.
void check_unused(const Config& config, ConfigProblems& problems) {
  const RopeScalingConfig& scaling = config.model.rope_scaling;
  for (const Use& use : uses) {
    const ConfigKey& key = *std::ranges::find(config_keys(), use.key, &ConfigKey::path);
    const std::string value = key.write(config);
    const bool is_default = value == key.write(Config{}) || (&use == &uses.front() && scaling.factor == 1);
    if (is_default || std::ranges::find(use.types, scaling.type) != use.types.end()) continue;
    problems.add(use.key, "{} has no effect with model.rope_scaling.type {}; choose the type {}, or leave this key out",
                 value, name_of(scaling.type), one_of(use.types));
  }
}

void resolve_factor(ModelConfig& model, ConfigProblems& problems) {
  RopeScalingConfig& scaling = model.rope_scaling;
  if (scaling.type == RopeType::none) {
    scaling.factor = 1;
    return;
  }
  if (scaling.factor != 0) {
    if (scaling.factor < 1) {
      problems.add("model.rope_scaling.factor", "{} would shorten the length that was trained; it must be at least 1",
                   scaling.factor);
    }
    return;
  }
  const std::int64_t trained = scaling.original_max_position_embeddings, meant = model.max_position_embeddings;
  if (scaling.type != RopeType::yarn && scaling.type != RopeType::longrope) {
    problems.add("model.rope_scaling.factor", "{} needs a factor: new / trained length", name_of(scaling.type));
  } else if (meant < trained) {
    problems.add("model.rope_scaling.factor",
                 "{}'s factor is model.max_position_embeddings / model.rope_scaling.original_max_position_embeddings = "
                 "{} / {}, which must be at least 1; give the factor, or a larger model.max_position_embeddings",
                 name_of(scaling.type), meant, trained);
  } else if (trained > 0) {  // 0 is reported already
    scaling.factor = static_cast<double>(meant) / static_cast<double>(trained);
  }
}

void check_trained_length(const RopeScalingConfig& scaling, ConfigProblems& problems) {
  const char* const key = "model.rope_scaling.original_max_position_embeddings";
  const std::int64_t length = scaling.original_max_position_embeddings;
  if (needs_trained_length(scaling.type) && length == 0) {
    problems.add(key, "{} needs the length that the weights were trained at", name_of(scaling.type));
  } else if (scaling.type == RopeType::longrope && length == 1) {
    problems.add(key, "longrope takes the logarithm of this length, which must be 2 or more");
  }
}

void check_lists(const ModelConfig& model, ConfigProblems& problems) {
  const std::int64_t pairs = model.head_dim / 2;
  const auto check = [&](const char* key, const std::vector<double>& list) {
    if (std::ssize(list) == pairs) return;
    problems.add(key, "has {} numbers, but longrope needs one for each of the model.head_dim / 2 = {} pairs",
                 list.size(), pairs);
  };
  check("model.rope_scaling.short_factor", model.rope_scaling.short_factor);
  check("model.rope_scaling.long_factor", model.rope_scaling.long_factor);
}

}  // namespace

void check_rope_scaling(Config& config, ConfigProblems& problems) {
  ModelConfig& model = config.model;
  const RopeScalingConfig& scaling = model.rope_scaling;
  for (const Use& use : uses) {
    if (!problems.clean({use.key.c_str()})) return;
  }
  if (!problems.clean({"model.rope_scaling.type", "model.max_position_embeddings", "model.head_dim"})) return;
  check_unused(config, problems);
  check_trained_length(scaling, problems);
  resolve_factor(model, problems);
  if (scaling.type == RopeType::llama3 && scaling.low_freq_factor >= scaling.high_freq_factor) {
    problems.add("model.rope_scaling.high_freq_factor", "{} must be above model.rope_scaling.low_freq_factor = {}",
                 scaling.high_freq_factor, scaling.low_freq_factor);
  }
  if (scaling.type == RopeType::longrope && model.head_dim > 0) check_lists(model, problems);
}

}  // namespace ringtrain
