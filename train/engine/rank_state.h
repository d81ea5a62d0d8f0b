// Everything that one rank of a run holds: allocator, weights and gradients, model, batch, optimizer, and the buffers
// of evaluation and of checkpoints, large enough for every stage of the run. One constructor serves the run and its
// plan: with a null world it records what it would allocate and touches nothing, which is the memory plan that
// --dry-run prints. After it nothing is allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "framework/allocator.h"
#include "framework/sequence/mesh.h"
#include "framework/system/compute_device.h"
#include "layers/execution_shape.h"
#include "layers/model/model.h"
#include "parallel/parameter_store.h"
#include "train/engine/optimizer.h"

namespace ringtrain {

struct Config;
class KeyValueCache;  // layers/key_value_cache.h
struct ModelConfig;
struct ModelDefinition;  // layers/model/model_definition.h
struct TrainingConfig;
const ModelDefinition& transformer_definition();

/// What a rank is for: sizes all its buffers.
struct RankPurpose {
  bool training = true;
  std::vector<std::int64_t> evaluation_lengths = {};  // empty: it never evaluates
  // Generation: a prompt of so many tokens, and how many follow at most; 0: it never generates.
  std::int64_t prompt_tokens = 0, new_tokens = 0;

  /// Returns whether it makes text.
  bool generates() const { return new_tokens > 0; }
};

/// Returns what a config's training run needs: evaluation lengths only if it evaluates.
RankPurpose training_purpose(const Config& config);

class RankState {
 public:
  /// Collective over world: it splits the ring's and the store's communicators off it. world null: planning only.
  /// table, pool, world and trace (null: nothing is recorded) must outlive it.
  /// device: that on which the rank computes, of the kind that the config says. definition: of the model, which has the
  /// parameters of table.
  RankState(const Config& config, const ParameterTable& table, const RankPurpose& purpose, int rank, Device device,
            ThreadPool& pool, Communicator* world, RankTrace* trace = nullptr,
            const ModelDefinition& definition = transformer_definition());
  ~RankState();

  const Mesh mesh;
  const int rank;
  const ShardSpec shard;  // how this rank's share of a sequence is cut
  Communicator* const world;

  Allocator allocator;  // first to be made, last to go
  ComputeDevice compute;
  Stream& stream;
  std::shared_ptr<Communicator> gpus;  // all ranks, their GPU memory carried by NCCL; null: world carries it too
  std::unique_ptr<Communicator> sequence_group;
  ParameterStore parameters;
  const ExecutionShape shape;
  const std::unique_ptr<Model> model;
  Batch batch;                       // of the first micro-batch, and of evaluation
  std::vector<Batch> later_batches;  // of the other micro-batches: none is filled while the device may still copy it;
                                     // each is as large as the stages that have it need
  Tensor evaluation_nll;             // float64 [T of evaluation], on the host
  Tensor staging;   // [staging_elements] of the state's dtype, on the host: loads, and saves without a snapshot, go
                    // through here
  Tensor snapshot;  // [1 + states, own elements], on the host: weights and optimizer state of this rank's slices, as
                    // they were when the save under way began; empty if training waits for its saves
  Tensor frozen_snapshot;  // [own elements that are frozen], on the host, of a GPU's weights: as the model has them
  Tensor step_sums;        // float64 [2], on the host: a step's loss and square of the norm, as the device gives them
  Tensor logits;           // [V] of the model's dtype, on the host: a decode step's; rank 0's where a GPU generates
  std::unique_ptr<Optimizer> optimizer;  // null unless training
  std::unique_ptr<KeyValueCache> cache;  // null unless generating
  std::set<std::string> passes;          // kinds that have ended in lockstep: FirstPass's

  /// Leaves the communicators, in order, when the rank's work is done: collective. After an error they are given up.
  void close();

  /// Lets the model's rotary positions turn as this config says: of a stage, or of the model that a run begins with.
  void use_rope(const ModelConfig& config);
  /// Returns where a micro-batch of a step is loaded.
  Batch& batch_of(std::int64_t micro) { return micro == 0 ? batch : later_batches[micro - 1]; }

  /// Returns the dtype of weights and moments as checkpoints keep them.
  DType state_dtype() const { return accumulator(parameters.dtype()); }

  static constexpr std::int64_t staging_elements = std::int64_t{1} << 18;

 private:
  void make_generation(const Config& config, const RankPurpose& purpose);
  void make_training(const Config& config);
  void make_snapshot(const Config& config);
};

/// Returns the device of a rank of those on this machine, `here`: the CPU, or one of its GPUs, which they take in turn.
Device device_of(const TrainingConfig& config, int rank, std::span<const int> here);

/// What a rank will hold, and which ranks hold the same: the result of planning.
struct RankPlan {
  std::vector<int> ranks;              // ascending
  std::vector<PlannedTensor> tensors;  // on its device
  MemoryUse peak;
  MemoryUse host;  // pinned host memory besides, where the device is a GPU
};

/// Returns the plans of the config's mesh: one for each kind of rank, in the order of the first rank of each. What
/// makes a kind are its tokens and its share of the optimizer's state; a mesh of a million ranks has a few.
std::vector<RankPlan> plan_ranks(const Config& config, const ParameterTable& table, const RankPurpose& purpose,
                                 const ModelDefinition& definition = transformer_definition());

}  // namespace ringtrain
