// How a model computes that is only asked: the one rule of evaluate and generate for what their flags have in common.
#pragma once

#include <cstdint>
#include <string>

namespace ringtrain {

struct Config;

struct Computation {
  std::string device = "auto";        // cpu | cuda | auto: cuda if the checkpoint was made there and this build has it
  std::string dtype;                  // "": the checkpoint's, of a model from elsewhere float32; float64, bfloat16
  bool shard_weights = false;         // each rank holds its part of the weights; false: as the config says
  std::int64_t threads_per_rank = 0;  // 0: cores / ranks
  bool share_gpu = false;             // as mesh.share_gpu
};

/// Lets a config compute so, on a mesh of data x sequence ranks that is started as they are. Throws Error(usage) that
/// names the flag for what this build or the device cannot do.
void set_computation(Config& config, const Computation& asked, std::int64_t data, std::int64_t sequence);

}  // namespace ringtrain
