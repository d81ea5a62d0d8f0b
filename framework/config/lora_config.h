// Low-rank adapters: a section of the config, and a part of what a model is made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringtrain {

/// Keys and meaning are PEFT's; layers/lora.h computes them.
struct LoraConfig {
  std::int64_t rank = 0;  // 0: there are none
  double alpha = 16;
  std::vector<std::string> targets{"q_proj", "v_proj"};  // which projections of a layer have an adapter

  bool on() const { return rank > 0; }
  /// Returns the factor of what adapters add.
  double scale() const { return alpha / static_cast<double>(rank); }
  friend bool operator==(const LoraConfig&, const LoraConfig&) = default;
};

}  // namespace ringtrain
