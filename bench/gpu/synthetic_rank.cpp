#include "bench/gpu/synthetic_rank.h"

#include <algorithm>
#include <cmath>

#include "bench/gpu/random_values.h"
#include "layers/model/step_work.h"
#include "tests/support/shards.h"

namespace ringtrain::bench {

namespace {

/// Returns a token of the vocabulary, the same for all ranks.
std::int32_t token_at(std::int64_t position, std::int64_t vocabulary) {
  std::uint64_t x = static_cast<std::uint64_t>(position) * 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9U;
  return static_cast<std::int32_t>((x >> 33) % static_cast<std::uint64_t>(vocabulary));
}

}  // namespace

ModelConfig billion_model(bool tiny) {
  ModelConfig model;
  model.vocab_size = tiny ? 96 : 128256;
  model.hidden_size = tiny ? 64 : 2048;
  model.num_hidden_layers = tiny ? 3 : 16;
  model.num_attention_heads = tiny ? 2 : 16;
  model.num_key_value_heads = tiny ? 1 : 8;
  model.head_dim = tiny ? 64 : 128;
  model.intermediate_size = tiny ? 80 : 8192;
  return model;
}

Config synthetic_config(const ModelConfig& model, std::int64_t context) {
  Config config;
  config.name = "synthetic";
  config.model = model;
  config.data.packing = Packing::concat;
  config.mesh.backend = Backend::threads;
  config.mesh.threads_per_rank = 1;
  config.training.seq_len = context;
  config.training.steps = 1000;
  config.training.device = Device::Kind::cuda;
  config.training.dtype = DType::bfloat16;
  config.training.deterministic = false;
  return config;
}

double model_flops(const Config& config) {
  const auto T = static_cast<double>(config.training.seq_len);
  const LayerPairs pairs =
      layer_pairs(mask_counts(config.model, config.training), [&](const AttentionMask&) { return T * (T + 1) / 2; });
  return useful_flops(config.model, config.training).total(T, pairs);
}

SyntheticRank::SyntheticRank(const Config& config, const ParameterTable& table, ThreadPool& pool, Communicator& world)
    : config_(config), state_(config, table, training_purpose(config), world.rank(), Device::cuda(0), pool, &world) {
  fill_weights();
  fill_batch();
}

void SyntheticRank::fill_weights() {
  Stream& stream = state_.stream;
  RandomValues random(state_.allocator, stream, DType::bfloat16, config_.model.initializer_range,
                      std::min<std::int64_t>(1 << 20, state_.parameters.table().count()));
  state_.parameters.clear_weights();  // including the padding
  const ParameterTable& table = state_.parameters.table();
  for (const ParameterSlice& slice : state_.parameters.held()) {
    const Parameter& parameter = table[slice.parameter];
    if (parameter.init_stddev == 0) {
      fill(stream, state_.parameters.weights(slice), parameter.init_value);
    } else {
      random.fill(state_.parameters.weights(slice));
    }
  }
  state_.optimizer->reset();
  for (const ParameterSlice& slice : state_.optimizer->slices()) {
    convert(stream, state_.optimizer->weights(slice), state_.parameters.weights(slice));
  }
  stream.synchronize();  // the random values are freed
}

void SyntheticRank::fill_batch() {
  Batch& batch = state_.batch;
  const std::int64_t S = config_.training.seq_len;
  batch.B = 1;
  batch.has_documents = false;
  auto [segments, extents] = testing::shards_of(config_.mesh.layout, S, state_.mesh.sequence);
  batch.ring_segments = std::move(segments);
  batch.extents = std::move(extents);
  batch.segments = batch.ring_segments[state_.shard.ring_rank];
  batch.T = token_count(batch.segments);
  const std::int64_t V = config_.model.vocab_size;
  for (std::int64_t i = 0; i < batch.T; ++i) {
    const std::int64_t position = position_of(batch.segments, i);
    batch.tokens().as<std::int32_t>()[i] = token_at(position, V);
    batch.labels().as<std::int32_t>()[i] = position + 1 < S ? token_at(position + 1, V) : -1;
    batch.positions().as<std::int32_t>()[i] = static_cast<std::int32_t>(position);
    batch.documents().as<std::int32_t>()[i] = 0;
    batch.weights().as<float>()[i] = 1;
    batch.target_count += position + 1 < S ? 1 : 0;
  }
  batch.weight_sum = static_cast<double>(batch.target_count);
  denominator_ = static_cast<double>(S - 1);
}

void SyntheticRank::pass() {
  state_.parameters.begin_step();
  state_.model->train_step(state_.batch, denominator_, /*last=*/false);
}

double SyntheticRank::step() {
  state_.parameters.begin_step();
  state_.model->train_step(state_.batch, denominator_, /*last=*/true);
  state_.parameters.finish_step();
  const double loss = state_.model->take_loss_sum() / std::max(1.0, state_.batch.weight_sum);
  // On one rank this is the whole norm; on several, each clips by its own share, which costs the same as using the sum.
  const TensorView squares = state_.step_sums.view().rows(1, 2);
  state_.optimizer->sum_of_squares(squares);
  state_.stream.synchronize();
  const double norm = std::sqrt(*squares.as<double>());
  state_.optimizer->update(config_.optimizer.lr, ++steps_, clip_factor(norm, config_.optimizer.max_grad_norm));
  state_.parameters.weights_changed();
  return loss;
}

}  // namespace ringtrain::bench
