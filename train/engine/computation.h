// How a model computes outside training: evaluate and generate share one rule for their common flags.
#pragma once

#include <cstdint>
#include <string>

namespace ringtrain {

struct Config;

struct Computation {
  std::string device = "auto";        // cpu | cuda | auto: cuda if the checkpoint was made there and this build has it
  std::string dtype;                  // "": the checkpoint's, or float32 for a model from elsewhere; float64, bfloat16
  bool shard_weights = false;         // whether each rank holds only its part of the weights; false: as the config says
  std::int64_t threads_per_rank = 0;  // 0: cores / ranks
  bool share_gpu = false;             // like mesh.share_gpu
};

/// Sets these choices in a config, on a mesh of data x sequence ranks that start as they are. Throws Error(usage),
/// which names the flag, for what this build or the device cannot do.
void set_computation(Config& config, const Computation& asked, std::int64_t data, std::int64_t sequence);

}  // namespace ringtrain
