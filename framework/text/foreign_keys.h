// The names that other projects give to config keys: transformers and TRL, PEFT, axolotl, torchtitan, Megatron-LM,
// nanoGPT. docs/coming-from.md lists them for users.
#pragma once

#include <string_view>

namespace ringtrain {

/// A key of ours that has other names elsewhere.
struct ForeignKey {
  std::string_view key, names;  // names: in other projects, or in sections that do not have the key; spaces around each
  std::string_view note = "";   // how a value under these names differs from the key's
};

/// Returns the key that another project calls by all of `path`, or by its last part; nullptr if no known project does.
const ForeignKey* foreign_key(std::string_view path);

/// Keys that a config may contain and that become other keys: a share of training.steps becomes
/// lr_scheduler.warmup_steps, and passes over the data become training.steps.
inline constexpr std::string_view warmup_ratio = "lr_scheduler.warmup_ratio", epochs = "training.epochs";

/// Returns the path of the key for which a config may also write `path`, such as PEFT's lora.r; otherwise path itself.
std::string_view own_path_of(std::string_view path);

}  // namespace ringtrain
