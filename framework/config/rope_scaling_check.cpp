#include "framework/config/rope_scaling_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "framework/config/model_config.h"

namespace ringtrain {

namespace {

using Types = std::vector<RopeType>;

/// A key of the section, the types that use it, and whether it was given a value of its own.
struct Use {
  const char* key;
  Types types;
  bool (*is_set)(const RopeScalingConfig&);
  std::string (*text)(const RopeScalingConfig&);
};

template <auto member>
Use use_of(const char* key, Types types) {
  return {key, std::move(types),
          [](const RopeScalingConfig& scaling) { return scaling.*member != RopeScalingConfig{}.*member; },
          [](const RopeScalingConfig& scaling) { return fmt::format("{}", scaling.*member); }};
}

const std::vector<Use>& uses() {
  using S = RopeScalingConfig;
  static const std::vector<Use> all{
      {"model.rope_scaling.factor",
       {RopeType::linear, RopeType::ntk, RopeType::yarn, RopeType::llama3, RopeType::longrope},
       [](const S& scaling) { return scaling.factor != 0 && scaling.factor != 1; },
       [](const S& scaling) { return fmt::format("{}", scaling.factor); }},
      // linear and ntk have no use for it, but a reader may.
      use_of<&S::original_max_position_embeddings>(
          "model.rope_scaling.original_max_position_embeddings",
          {RopeType::linear, RopeType::ntk, RopeType::yarn, RopeType::llama3, RopeType::longrope}),
      use_of<&S::attention_factor>("model.rope_scaling.attention_factor", {RopeType::yarn, RopeType::longrope}),
      use_of<&S::beta_fast>("model.rope_scaling.beta_fast", {RopeType::yarn}),
      use_of<&S::beta_slow>("model.rope_scaling.beta_slow", {RopeType::yarn}),
      use_of<&S::mscale>("model.rope_scaling.mscale", {RopeType::yarn}),
      use_of<&S::mscale_all_dim>("model.rope_scaling.mscale_all_dim", {RopeType::yarn}),
      use_of<&S::truncate>("model.rope_scaling.truncate", {RopeType::yarn}),
      use_of<&S::low_freq_factor>("model.rope_scaling.low_freq_factor", {RopeType::llama3}),
      use_of<&S::high_freq_factor>("model.rope_scaling.high_freq_factor", {RopeType::llama3}),
      use_of<&S::short_factor>("model.rope_scaling.short_factor", {RopeType::longrope}),
      use_of<&S::long_factor>("model.rope_scaling.long_factor", {RopeType::longrope}),
  };
  return all;
}

bool uses_key(const Use& use, RopeType type) {
  return std::find(use.types.begin(), use.types.end(), type) != use.types.end();
}

/// Returns "linear, yarn or llama3".
std::string one_of(const Types& types) {
  std::string text;
  for (const RopeType& type : types) {
    const char* const joint = &type == &types.front() ? "" : &type == &types.back() ? " or " : ", ";
    text += joint + std::string(name_of(type));
  }
  return text;
}

/// Adds a problem for each key that was set and that the type does not use.
void check_unused(const RopeScalingConfig& scaling, ConfigProblems& problems) {
  for (const Use& use : uses()) {
    if (uses_key(use, scaling.type) || !use.is_set(scaling)) continue;
    problems.add(use.key, fmt::format("{} has no effect with model.rope_scaling.type {}; choose {}, or leave it out",
                                      use.text(scaling), name_of(scaling.type), one_of(use.types)));
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
      problems.add("model.rope_scaling.factor",
                   fmt::format("{} would shorten the length that was trained; it must be at least 1", scaling.factor));
    }
    return;
  }
  const char* const type = name_of(scaling.type);
  const bool derives = scaling.type == RopeType::yarn || scaling.type == RopeType::longrope;
  const std::int64_t trained = scaling.original_max_position_embeddings, meant = model.max_position_embeddings;
  if (!derives) {
    problems.add("model.rope_scaling.factor", fmt::format("{} needs the new length / the trained length", type));
  } else if (meant < trained || trained == 0) {
    if (trained == 0) return;  // reported already
    problems.add("model.rope_scaling.factor",
                 fmt::format("{} takes it from model.max_position_embeddings / "
                             "model.rope_scaling.original_max_position_embeddings = {} / {}, which must be at least 1; "
                             "give the factor, or the length that the model is meant for",
                             type, meant, trained));
  } else {
    scaling.factor = static_cast<double>(meant) / static_cast<double>(trained);
  }
}

void check_trained_length(const RopeScalingConfig& scaling, ConfigProblems& problems) {
  const char* const key = "model.rope_scaling.original_max_position_embeddings";
  const std::int64_t length = scaling.original_max_position_embeddings;
  if (needs_trained_length(scaling.type) && length == 0) {
    problems.add(key, fmt::format("{} needs the length that the weights were trained at", name_of(scaling.type)));
  } else if (scaling.type == RopeType::longrope && length == 1) {
    problems.add(key, "longrope takes the logarithm of this length, which must be 2 or more");
  }
}

void check_lists(const ModelConfig& model, ConfigProblems& problems) {
  const std::int64_t pairs = model.head_dim / 2;
  const auto check = [&](const char* key, const std::vector<double>& list) {
    if (std::ssize(list) == pairs) return;
    problems.add(key,
                 fmt::format("has {} numbers, but longrope needs one for each of the model.head_dim / 2 = {} pairs",
                             list.size(), pairs));
  };
  check("model.rope_scaling.short_factor", model.rope_scaling.short_factor);
  check("model.rope_scaling.long_factor", model.rope_scaling.long_factor);
}

}  // namespace

void check_rope_scaling(ModelConfig& model, ConfigProblems& problems) {
  const RopeScalingConfig& scaling = model.rope_scaling;
  for (const Use& use : uses()) {
    if (!problems.clean({use.key})) return;
  }
  if (!problems.clean({"model.rope_scaling.type", "model.max_position_embeddings", "model.head_dim"})) return;
  check_unused(scaling, problems);
  check_trained_length(scaling, problems);
  resolve_factor(model, problems);
  if (scaling.type == RopeType::llama3 && scaling.low_freq_factor >= scaling.high_freq_factor) {
    problems.add("model.rope_scaling.high_freq_factor",
                 fmt::format("{} must be above model.rope_scaling.low_freq_factor = {}", scaling.high_freq_factor,
                             scaling.low_freq_factor));
  }
  if (scaling.type == RopeType::longrope) check_lists(model, problems);
}

}  // namespace ringtrain
