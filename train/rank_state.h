// Everything that one rank of a run holds: allocator, weights, model, batch, gradient reduction, optimizer, and the
// buffers of evaluation and of checkpoints. One constructor serves the run and its plan: with a null world it records
// what it would allocate and touches nothing, which is the memory plan that --dry-run prints. After it nothing is
// allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/batch.h"
#include "data/loader.h"
#include "framework/allocator.h"
#include "framework/config.h"
#include "framework/parameters.h"
#include "framework/stream.h"
#include "layers/transformer.h"
#include "parallel/communicator.h"
#include "parallel/gradient_reduction.h"
#include "train/optimizer.h"

namespace ringtrain {

/// What a rank is for: sizes all its buffers.
struct RankPurpose {
  bool training = true;
  std::vector<std::int64_t> evaluation_lengths;  // empty: it never evaluates
};

/// Return what a config's training run needs: evaluation lengths only if it evaluates.
RankPurpose training_purpose(const Config& config);

class RankState {
 public:
  /// Collective over world: it splits the ring's and the reduction's communicators off it. world null: planning only.
  /// table, pool, world and trace (null: nothing is recorded) must outlive it.
  RankState(const Config& config, const ParameterTable& table, const RankPurpose& purpose, int rank, ThreadPool& pool,
            Communicator* world, TraceTrack* trace = nullptr);

  const Mesh mesh;
  const int rank;
  const ShardSpec shard;  // how this rank's share of a sequence is cut
  Communicator* const world;

  Allocator allocator;  // first to be made, last to go
  Tensor scratch;       // of the stream's kernels
  Stream stream;
  std::unique_ptr<Communicator> ring;
  Parameters parameters;
  Transformer model;
  Batch batch;
  Tensor evaluation_nll;  // float64 [T of evaluation], on the host
  Tensor staging;         // [staging_elements], on the host: loads, and saves without a snapshot, go through here
  Tensor snapshot;  // [3, own elements], on the host: weights and both moments of this rank's slices, as they were
                    // when the save under way began; empty if training waits for its saves
  std::unique_ptr<GradientReduction> reduction;  // null unless training
  std::unique_ptr<Optimizer> optimizer;          // null unless training

  static constexpr std::int64_t staging_elements = std::int64_t{1} << 18;
};

/// What one rank will hold: the result of planning.
struct RankPlan {
  int rank = 0;
  std::vector<PlannedTensor> tensors;
  MemoryUse peak;
};

/// Return the plan of every rank of the config's mesh.
std::vector<RankPlan> plan_ranks(const Config& config, const ParameterTable& table, const RankPurpose& purpose);

}  // namespace ringtrain
