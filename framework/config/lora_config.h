// Low-rank adapters: a section of the config, and a part of a model's description.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringtrain {

/// Keys and meanings are those of PEFT; layers/lora.h computes the adapters.
struct LoraConfig {
  std::int64_t rank = 0;  // 0: no adapters
  double alpha = 16;
  std::vector<std::string> targets{"q_proj", "v_proj"};  // the projections of a layer that have an adapter

  bool on() const { return rank > 0; }
  /// Returns the factor that multiplies the adapters' output.
  double scale() const { return alpha / static_cast<double>(rank); }
  friend bool operator==(const LoraConfig&, const LoraConfig&) = default;
};

}  // namespace ringtrain
