// The names that other projects give to config keys: transformers and TRL, PEFT, axolotl, torchtitan, Megatron-LM,
// nanoGPT. docs/coming-from.md lists them for users.
#pragma once

#include <string_view>

namespace ringtrain {

/// Returns the path of the key that another project calls `name`; "" if no known project does. name: without the
/// sections before it.
std::string_view key_called_elsewhere(std::string_view name);

/// Keys that a config may contain and that become other keys: a share of training.steps becomes
/// lr_scheduler.warmup_steps, and passes over the data become training.steps.
inline constexpr std::string_view warmup_ratio = "lr_scheduler.warmup_ratio", epochs = "training.epochs";

/// Returns the path of the key for which a config may also write `path`, such as PEFT's lora.r; otherwise path itself.
std::string_view own_path_of(std::string_view path);

}  // namespace ringtrain
