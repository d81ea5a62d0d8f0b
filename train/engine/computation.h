// On what a model that is only asked computes, and in which precision: the one rule of evaluate and generate for their
// flags --device and --dtype.
#pragma once

#include <string>

namespace ringtrain {

struct TrainingConfig;

/// Sets training's device, dtype and offload. device: cpu, cuda, or auto (cuda if the checkpoint was made there and
/// this build has it). dtype: float32, float64, bfloat16, or empty for the checkpoint's. Throws Error(usage) that names
/// the flag for what this build or the device cannot do.
void choose_computation(const std::string& device, const std::string& dtype, TrainingConfig& training);

}  // namespace ringtrain
