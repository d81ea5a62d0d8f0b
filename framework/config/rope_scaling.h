// How rotary positions extend beyond the trained length: a section of the config, from which the kernel computes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "framework/config/named.h"

namespace ringtrain {

enum class RopeType { none, linear, ntk, yarn, llama3, longrope };  // kernels/rope.h says what each computes
inline constexpr std::array rope_type_names{Named{RopeType::none, "none"},     Named{RopeType::linear, "linear"},
                                            Named{RopeType::ntk, "ntk"},       Named{RopeType::yarn, "yarn"},
                                            Named{RopeType::llama3, "llama3"}, Named{RopeType::longrope, "longrope"}};
inline constexpr std::array all_rope_types = values_of(rope_type_names);
inline const char* name_of(RopeType type) {
  return name_in(rope_type_names, type);
}

/// Returns whether a scaling of this type is computed from the length at which the weights were trained.
constexpr bool needs_trained_length(RopeType type) {
  return type == RopeType::yarn || type == RopeType::llama3 || type == RopeType::longrope;
}

/// Rotary positions beyond the trained length. Keys and meanings are those of Hugging Face, except ntk, which is ours.
struct RopeScalingConfig {
  RopeType type = RopeType::none;
  double factor = 0;  // new length / trained length; 0 in the file: 1, or from the two lengths; resolved by the reader
  std::int64_t original_max_position_embeddings = 0;  // the trained length: yarn, llama3, longrope
  double attention_factor = 0;                        // of cosines and sines: yarn, longrope; 0: from the factor
  double beta_fast = 32, beta_slow = 1;               // yarn: rotations that bound the ramp
  double mscale = 0, mscale_all_dim = 0;              // yarn: of the attention factor; 0: not used
  bool truncate = true;                               // yarn: the ramp's ends are whole numbers
  double low_freq_factor = 1, high_freq_factor = 4;   // llama3: wavelengths that bound the ramp
  std::vector<double> short_factor, long_factor;      // longrope: [head_dim / 2]
  friend bool operator==(const RopeScalingConfig&, const RopeScalingConfig&) = default;
};

}  // namespace ringtrain
