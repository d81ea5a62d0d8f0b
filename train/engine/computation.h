// On what a model that is only asked computes, and in which precision: the one rule of evaluate and generate for their
// flags --device and --dtype. And how a CPU multiplies what a run computes with.
#pragma once

#include <string>

namespace ringtrain {

struct TrainingConfig;

/// Sets training's device, dtype and offload. device: cpu, cuda, or auto (cuda if the checkpoint was made there and
/// this build has it). dtype: float32, float64, bfloat16, or empty for the checkpoint's. Throws Error(usage) that names
/// the flag for what this build or the device cannot do.
void choose_computation(const std::string& device, const std::string& dtype, TrainingConfig& training);

/// Returns the instructions that multiply bfloat16 in this process, "AVX512-BF16" or "float32"; empty for a run on GPUs
/// or of another dtype. The numbers do not depend on them (kernels/bfloat16_products.h), so ranks may differ.
std::string bfloat16_instructions(const TrainingConfig& training);

}  // namespace ringtrain
