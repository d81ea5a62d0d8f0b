#include "train/engine/rank_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include "framework/config/config.h"
#include "framework/config/training_stages.h"
#include "kernels/elementwise.h"
#include "layers/key_value_cache.h"
#include "layers/model/model_definition.h"
#include "layers/model_spec.h"
#include "parallel/launch/communicator_factory.h"
#include "parallel/store_context.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#endif

namespace ringtrain {

namespace {

std::int64_t shard_tokens(const MeshConfig& mesh, std::int64_t length, int ring_rank) {
  return token_count(shard_segments(mesh.layout, length, static_cast<int>(mesh.sequence), ring_rank));
}

/// Returns the most tokens of a sequence that a ring rank holds in any stage of at least this many micro-batches.
std::int64_t most_tokens(const Config& config, int ring_rank, std::int64_t micro_batches = 1) {
  std::int64_t most = 0;
  for (const Config& stage : configs_of_stages(config)) {
    const TrainingConfig& training = stage.training;
    if (stage.micro_batches() < micro_batches) continue;
    most = std::max(most, shard_tokens(config.mesh, training.seq_len, ring_rank));
  }
  return most;
}

/// Returns the most micro-batches of a data rank in any stage.
std::int64_t most_micro_batches(const Config& config) {
  std::int64_t most = 1;
  for (const Config& stage : configs_of_stages(config)) {
    most = std::max(most, stage.micro_batches());
  }
  return most;
}

/// Returns the most tokens of a forward-only sequence. (A prompt's last token is the first decode step.)
std::int64_t longest_evaluation(const RankPurpose& purpose) {
  if (purpose.generates()) return purpose.prompt_tokens - 1;
  return purpose.evaluation_lengths.empty() ? 0 : std::ranges::max(purpose.evaluation_lengths);
}

ExecutionShape execution_shape(const Config& config, const RankPurpose& purpose, int ring_rank) {
  const TrainingConfig& training = config.training;
  const std::int64_t longest = longest_evaluation(purpose);
  ExecutionShape shape;
  shape.ring_size = static_cast<int>(config.mesh.sequence);
  shape.max_sequences = purpose.training ? training.micro_batch_size : 1;
  shape.max_tokens = purpose.training ? most_tokens(config, ring_rank) : 0;
  shape.max_evaluation_sequences = 1;
  shape.max_evaluation_tokens = shard_tokens(config.mesh, longest, ring_rank);
  // Rank 0 of a ring has the largest shard, whatever the sequence length.
  shape.max_ring_tokens = purpose.training ? most_tokens(config, 0) : 0;
  shape.max_evaluation_ring_tokens = shard_tokens(config.mesh, longest, 0);
  shape.dtype = training.dtype;
  shape.recompute = training.recompute;
  shape.offload = training.offloads(Offload::activations);
  shape.feedforward_chunk = training.feedforward_tokens();
  shape.loss_chunk = training.loss_tokens();
  shape.deterministic = training.deterministic;
  shape.audit_rows = purpose.training && training.audit.interval > 0 ? training.audit.rows : 0;
  shape.documents = purpose.training && parts_documents(config.data.packing);
  if (purpose.generates()) {
    shape.max_evaluation_tokens = std::max<std::int64_t>(1, shape.max_evaluation_tokens);  // all compute new tokens
    shape.loss_chunk = 1;
  }
  return shape;
}

/// Returns the tokens per sequence with which a batch of `sequences` also has room for one evaluation sequence.
std::int64_t batch_tokens(const ExecutionShape& shape) {
  return std::max(shape.max_tokens, (shape.max_evaluation_tokens + shape.max_sequences - 1) / shape.max_sequences);
}

/// Returns a communicator that exchanges GPU memory in the order of this stream's work.
std::unique_ptr<Communicator> ordered(std::unique_ptr<Communicator> ranks, Stream& stream) {
  ranks->set_stream(stream);
  return ranks;
}

/// Returns who adds gradients: NCCL, if it connects the ranks, unless the config requires the same bits, which NCCL
/// does not always give (NVLink's own sums use any order).
SumOrder sum_order(const Config& config, bool joined_by_nccl) {
  return joined_by_nccl && !config.training.deterministic ? SumOrder::by_communicator : SumOrder::by_rank;
}

}  // namespace

RankPurpose training_purpose(const Config& config) {
  RankPurpose purpose;
  if (config.evaluation.interval > 0) purpose.evaluation_lengths = config.evaluation.context_lengths;
  return purpose;
}

RankState::RankState(const Config& config, const ParameterTable& table, const RankPurpose& purpose, int rank_index,
                     Device device, ThreadPool& pool, Communicator* world_communicator, RankTrace* trace,
                     const ModelDefinition& definition)
    : mesh{static_cast<int>(config.mesh.data), static_cast<int>(config.mesh.sequence)},
      rank(rank_index),
      shard{config.mesh.layout, mesh.sequence, mesh.sequence_index(rank_index)},
      world(world_communicator),
      allocator(device, world ? Allocator::Mode::real : Allocator::Mode::plan),
      compute(allocator, pool, trace),
      stream(compute.stream()),
      gpus(world ? make_device_communicator(config.mesh, *world, stream, trace) : nullptr),
      sequence_group(world ? ordered((gpus ? gpus.get() : world)->split(mesh.data_index(rank)), stream) : nullptr),
      parameters(allocator, table, stream,
                 {.dtype = config.training.dtype,
                  .gradients = purpose.training,
                  .shard = config.training.shard,
                  .ranks = mesh.size(),
                  .rank = rank,
                  .order = sum_order(config, world ? gpus != nullptr : nccl_is_planned(config.mesh, device)),
                  .master_weights = purpose.training && config.training.store_holds_masters(),
                  .narrow_gradients = config.optimizer.gradients == DType::bfloat16},
                 gpus ? gpus.get() : world),
      shape(execution_shape(config, purpose, shard.ring_rank)),
      model(definition.make({.config = config,
                             .shape = shape,
                             .allocator = allocator,
                             .parameters = parameters,
                             .stream = stream,
                             .sequence_group = sequence_group.get()})),
      batch(allocator.host(), shape.max_sequences, batch_tokens(shape), config.training.dtype) {
  if (!model) fail(ExitCode::usage, "ModelDefinition::make of the model \"{}\" returned null", definition.name);
  if (purpose.generates()) {
    make_generation(config, purpose);
  } else if (shape.max_evaluation_tokens > 0) {
    evaluation_nll =
        allocator.host().make(Tag::workspace, "evaluation nll", DType::float64, {shape.max_evaluation_tokens});
  }
  staging = allocator.host().make(Tag::checkpoint, "staging", state_dtype(), {staging_elements});
  if (!purpose.training) return;
  make_training(config);
  if (config.checkpoint.background && config.checkpoint.interval > 0) make_snapshot(config);
}

RankState::~RankState() = default;

void RankState::make_generation(const Config& config, const RankPurpose& purpose) {
  const std::int64_t prompt = shard_tokens(config.mesh, purpose.prompt_tokens - 1, shard.ring_rank);
  cache = std::make_unique<KeyValueCache>(allocator, model_spec(config.model), config.training.dtype,
                                          KeyValueCache::capacity_of(prompt, purpose.new_tokens, mesh.sequence),
                                          mesh.sequence, sequence_group.get());
  if (allocator.device().is_cpu() || rank != 0) return;
  logits = allocator.host().make(Tag::workspace, "logits", config.training.dtype, {config.model.vocab_size});
}

void RankState::make_training(const Config& config) {
  const std::int64_t micro_batches = most_micro_batches(config);
  for (std::int64_t number = 2; number <= micro_batches; ++number) {
    later_batches.emplace_back(allocator.host(), shape.max_sequences, most_tokens(config, shard.ring_rank, number),
                               config.training.dtype);
  }
  step_sums = allocator.host().make(Tag::workspace, "loss and gradient norm", DType::float64, {2});
  optimizer =
      std::make_unique<Optimizer>(allocator, config.optimizer, config.training.seed, parameters, stream,
                                  config.training.offloads(Offload::optimizer) ? config.optimizer.host_share : 0);
}

void RankState::make_snapshot(const Config& config) {
  for (std::size_t kind = 0; kind < snapshot.size(); ++kind) {
    snapshot[kind] =
        allocator.host().make(Tag::checkpoint, fmt::format("snapshot {}", kind),
                              kind == 0 ? state_dtype() : optimizer->moments_dtype(), {optimizer->elements()});
  }
  if (allocator.device().is_cpu() || parameters.frozen_slices().empty() || config.model.lora.on()) return;
  const ParameterSlice& last = parameters.frozen_slices().back();
  frozen_snapshot = allocator.host().make(Tag::checkpoint, "snapshot of frozen weights", parameters.dtype(),
                                          {last.offset + last.count()});
}

void RankState::copy_staged(const TensorView& to, const TensorView& values) {
  TensorView narrow = values;
  narrow.dtype = to.dtype;
  for (std::int64_t i = 0; to.dtype == DType::bfloat16 && i < values.numel(); ++i) {
    narrow.as<BFloat16>()[i] = BFloat16::rounded(values.as<float>()[i]);
  }
  copy(stream, to, narrow);
  stream.synchronize();
}

void RankState::use_rope(const ModelConfig& config) {
  model->set_ropes(model_spec(config).ropes);
}

void RankState::close() {
  if (gpus) gpus->close();  // the sequence group and the store's group are parts of it
}

Device device_of(const TrainingConfig& config, [[maybe_unused]] int rank, [[maybe_unused]] std::span<const int> here) {
  if (config.device == Device::Kind::cpu) return Device::cpu();
#if RINGTRAIN_CUDA
  const auto index = std::find(here.begin(), here.end(), rank) - here.begin();
  return Device::cuda(static_cast<int>(index) % std::max(1, cuda::device_count()));
#else
  fail(ExitCode::device, "this program was built without CUDA");
#endif
}

std::vector<RankPlan> plan_ranks(const Config& config, const ParameterTable& table, const RankPurpose& purpose,
                                 const ModelDefinition& definition) {
  const Mesh mesh{static_cast<int>(config.mesh.data), static_cast<int>(config.mesh.sequence)};
  const std::vector<Config> stages = configs_of_stages(config);
  const std::vector<std::int64_t> owned = owned_elements(table, Part::trainable, mesh.size());
  const Device device = config.training.device == Device::Kind::cuda ? Device::cuda(0) : Device::cpu();  // any works
  ThreadPool pool(1);
  std::map<std::vector<std::int64_t>, std::size_t> kinds;
  std::vector<RankPlan> plans;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const int ring_rank = mesh.sequence_index(rank);
    // Everything by which execution_shape(), the store, and the optimizer distinguish ranks.
    std::vector<std::int64_t> kind{shard_tokens(config.mesh, longest_evaluation(purpose), ring_rank)};
    if (purpose.training) {
      kind.push_back(owned[rank]);
      if (config.optimizer.host_share < 1) {  // of whole slices
        for (const auto& own : owned_slices(table, Part::trainable, mesh.size(), rank)) kind.push_back(own.count());
      }
      for (const Config& stage : stages) kind.push_back(shard_tokens(config.mesh, stage.training.seq_len, ring_rank));
    }
    if (config.training.shard != Shard::optimizer || config.optimizer.gradients == DType::bfloat16) {
      for (const Part part : {Part::trainable, Part::frozen}) {
        kind.push_back(shard_offsets(table, part, mesh.size(), rank).back());
      }
    }
    const auto [known, fresh] = kinds.emplace(std::move(kind), plans.size());
    if (fresh) {
      const RankState state(config, table, purpose, rank, device, pool, nullptr, nullptr, definition);
      plans.push_back({{},
                       state.allocator.live(),
                       state.allocator.peak(),
                       state.allocator.device().is_cpu() ? MemoryUse{} : state.allocator.host().peak()});
    }
    plans[known->second].ranks.push_back(rank);
  }
  return plans;
}

}  // namespace ringtrain
