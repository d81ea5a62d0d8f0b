// Everything that one rank of a run holds: allocator, weights and gradients, model, batch, optimizer, and the buffers
// of evaluation and of checkpoints, large enough for every stage of the run. One constructor serves the run and its
// plan: with a null world, it only records what it would allocate, and that is the memory plan that --dry-run prints.
// Nothing is allocated after the constructor.
#pragma once

#include <array>
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

/// The purpose of a rank: it sizes all of the rank's buffers.
struct RankPurpose {
  bool training = true;
  std::vector<std::int64_t> evaluation_lengths = {};  // empty: it never evaluates
  // Generation: the length of a prompt, and the most tokens that follow; 0: it never generates.
  std::int64_t prompt_tokens = 0, new_tokens = 0;

  /// Returns whether the rank generates text.
  bool generates() const { return new_tokens > 0; }
};

/// Returns what a config's training run needs: evaluation lengths only if it evaluates.
RankPurpose training_purpose(const Config& config);

class RankState {
 public:
  /// Collective over world, which it splits into the ring's and the store's communicators. world null: planning only.
  /// table, pool, world, and trace (null: record nothing) must outlive it. device: the rank's, of the kind that the
  /// config says. definition: of the model, which has the parameters of table.
  RankState(const Config& config, const ParameterTable& table, const RankPurpose& purpose, int rank, Device device,
            ThreadPool& pool, Communicator* world, RankTrace* trace = nullptr,
            const ModelDefinition& definition = transformer_definition());
  ~RankState();

  const Mesh mesh;
  const int rank;
  const ShardSpec shard;  // how this rank's share of a sequence is cut
  Communicator* const world;

  Allocator allocator;  // constructed first, destroyed last
  ComputeDevice compute;
  Stream& stream;
  std::shared_ptr<Communicator> gpus;  // all ranks, connected by NCCL for GPU memory; null: world transfers it too
  std::unique_ptr<Communicator> sequence_group;
  ParameterStore parameters;
  const ExecutionShape shape;
  const std::unique_ptr<Model> model;
  Batch batch;                       // of the first micro-batch, and of evaluation
  std::vector<Batch> later_batches;  // of the other micro-batches: none is refilled while the device may still copy it;
                                     // each is as large as its stages need
  Tensor evaluation_nll;             // float64 [T of evaluation], on the host
  Tensor staging;  // [staging_elements] of the state's dtype, on the host: for loads, and for saves of other values
  // Each [own elements], on the host: this rank's weights and optimizer state when the pending save began; empty if
  // training waits for its saves.
  std::array<Tensor, 1 + optimizer_state.size()> snapshot;
  Tensor frozen_snapshot;  // [own frozen elements], on the host, of a GPU's weights, in the model's dtype
  Tensor step_sums;        // float64 [2], on the host: a step's loss and squared norm, from the device
  Tensor logits;           // [V] in the model's dtype, on the host: a decode step's; on rank 0, if a GPU generates
  std::unique_ptr<Optimizer> optimizer;  // null unless training
  std::unique_ptr<KeyValueCache> cache;  // null unless generating
  std::set<std::string> passes;          // kinds that have ended in lockstep (FirstPass)

  /// Closes the communicators, in order, when the rank's work is done: collective. After an error, they are abandoned.
  void close();

  /// Makes the model's rotary positions follow this config: that of a stage, or of the model with which a run begins.
  void use_rope(const ModelConfig& config);
  /// Returns the batch that holds a micro-batch of a step.
  Batch& batch_of(std::int64_t micro) { return micro == 0 ? batch : later_batches[micro - 1]; }

  /// Returns the dtype of weights and moments in checkpoints.
  DType state_dtype() const { return accumulator(parameters.dtype()); }

  /// Copies values, which are in the staging buffer, and waits. If `to` is bfloat16, rounds them there first.
  void copy_staged(const TensorView& to, const TensorView& values);

  static constexpr std::int64_t staging_elements = std::int64_t{1} << 18;

 private:
  void make_generation(const Config& config, const RankPurpose& purpose);
  void make_training(const Config& config);
  void make_snapshot(const Config& config);
};

/// Returns the device of one of this machine's ranks, `here`: the CPU, or one of its GPUs, assigned in turn.
Device device_of(const TrainingConfig& config, int rank, std::span<const int> here);

/// What a rank will hold, and which ranks hold the same: the result of planning.
struct RankPlan {
  std::vector<int> ranks;              // ascending
  std::vector<PlannedTensor> tensors;  // on its device
  MemoryUse peak;
  MemoryUse host;  // additional pinned host memory, if the device is a GPU
};

/// Returns the plans of the config's mesh: one for each kind of rank, in the order of the first rank of each. A rank's
/// tokens and its share of the optimizer's state determine its kind; a mesh of a million ranks has only a few kinds.
std::vector<RankPlan> plan_ranks(const Config& config, const ParameterTable& table, const RankPurpose& purpose,
                                 const ModelDefinition& definition = transformer_definition());

}  // namespace ringtrain
