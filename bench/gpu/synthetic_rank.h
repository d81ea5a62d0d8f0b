// The 1B model of the scaling group, and one rank of its training on synthetic tokens: the work of `train` in a step,
// without files. Weights and tokens are random; nothing is learned.
#pragma once

#include "framework/config/config.h"
#include "train/engine/rank_state.h"

namespace ringtrain::bench {

/// 16 layers, hidden 2048, feedforward 8192, 16 heads of 128, 8 key/value heads, vocabulary 128,256 with tied
/// embeddings: 1.27 billion parameters. tiny: the same structure in miniature.
ModelConfig billion_model(bool tiny);

/// Returns a config that trains the model at this context, one sequence per step: bfloat16, on the GPU, one stream of
/// tokens, attention's default backward.
Config synthetic_config(const ModelConfig& model, std::int64_t context);

/// Returns useful_flops() of a step with one causal sequence.
double model_flops(const Config& config);

class SyntheticRank {
 public:
  /// Collective over world. The config's mesh is that of world; thread ranks, all on GPU 0.
  SyntheticRank(const Config& config, const ParameterTable& table, ThreadPool& pool, Communicator& world);

  /// Runs forward and backward of the batch; gradients remain in this rank.
  void pass();
  /// Runs a whole step: forward and backward, reduction over the ranks, clipping, update, and sending weights back to
  /// all. Returns the mean loss of this rank's tokens.
  double step();

  RankState& state() { return state_; }

 private:
  void fill_weights();
  void fill_batch();

  const Config& config_;
  RankState state_;
  double denominator_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace ringtrain::bench
