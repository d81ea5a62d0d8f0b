// Runs a whole model on a ring of thread ranks for the tests of this folder: whole sequences are cut here into each
// rank's batch, and the ranks' results are joined again. Weights come from splitmix64, as in
// tests/golden/make_golden.py, so PyTorch used the same ones.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/batch.h"
#include "framework/config/model_config.h"
#include "framework/sequence/segments.h"
#include "framework/system/compute_device.h"
#include "kernels/elementwise.h"
#include "layers/model/transformer.h"
#include "layers/model_parameters.h"
#include "parallel/launch/launch.h"
#include "parallel/store_context.h"
#include "tests/support/elements.h"
#include "tests/support/flat_store.h"
#include "tests/support/shards.h"

namespace ringtrain::testing {

inline std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
/// Returns a number in [-1, 1), exact in double.
inline double uniform(std::uint64_t stream, std::uint64_t index) {
  return static_cast<double>(splitmix64((stream << 32) + index) >> 11) * 0x1.0p-52 - 1.0;
}

/// B sequences of S tokens, whole; all vectors [B * S].
struct Sequences {
  std::int64_t B = 0, S = 0;
  bool has_documents = false;
  std::vector<std::int32_t> tokens, labels, positions, documents;
  std::vector<double> weights;
  double denominator() const {
    double sum = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) sum += labels[i] >= 0 ? weights[i] : 0.0;
    return sum;
  }
};

/// Returns random sequences; with documents, one ends with probability 1/8 at each token.
inline Sequences random_sequences(const ModelConfig& config, std::int64_t B, std::int64_t S, bool documents,
                                  std::uint64_t seed) {
  Sequences result;
  result.B = B;
  result.S = S;
  result.has_documents = documents;
  const auto draw = [&](std::uint64_t what, std::int64_t b, std::int64_t i, std::int64_t bound) {
    const auto index = static_cast<std::uint64_t>(b * (S + 1) + i);
    return static_cast<std::int32_t>(splitmix64((seed * 16 + what) * 0x10000 + index) %
                                     static_cast<std::uint64_t>(bound));
  };
  for (std::int64_t b = 0; b < B; ++b) {
    std::int32_t document = 0, position = 0;
    for (std::int64_t i = 0; i < S; ++i) {
      const bool ends = documents && draw(2, b, i, 8) == 0;
      result.tokens.push_back(draw(1, b, i, config.vocab_size));
      result.labels.push_back(ends || draw(3, b, i, 9) == 0 ? -1 : draw(1, b, i + 1, config.vocab_size));
      result.weights.push_back(draw(4, b, i, 5) / 4.0);
      result.documents.push_back(document);
      result.positions.push_back(position++);
      if (ends) {
        ++document;
        position = 0;
      }
    }
  }
  return result;
}

/// Fills batch with a rank's shard.
inline void cut(Batch& batch, const Sequences& whole, Layout layout, int ranks, int rank) {
  Shards shards = shards_of(layout, whole.S, ranks, whole.B, whole.documents);
  batch.ring_segments = std::move(shards.segments);
  batch.extents = std::move(shards.extents);
  batch.segments = batch.ring_segments[rank];
  batch.B = whole.B;
  batch.T = token_count(batch.segments);
  batch.has_documents = whole.has_documents;
  batch.document_starts.assign(whole.has_documents ? whole.B : 0, {0});
  for (std::size_t b = 0; b < batch.document_starts.size(); ++b) {
    for (std::int64_t i = 1; i < whole.S; ++i) {
      const std::int32_t* const at =
          &whole.documents[b * static_cast<std::size_t>(whole.S) + static_cast<std::size_t>(i)];
      if (at[0] != at[-1]) batch.document_starts[b].push_back(i);
    }
  }
  for (std::int64_t b = 0, t = 0; b < batch.B; ++b) {
    for (std::int64_t i = 0; i < batch.T; ++i, ++t) {
      const auto from = static_cast<std::size_t>(b * whole.S + position_of(batch.segments, i));
      batch.tokens().as<std::int32_t>()[t] = whole.tokens[from];
      batch.labels().as<std::int32_t>()[t] = whole.labels[from];
      batch.positions().as<std::int32_t>()[t] = whole.positions[from];
      batch.documents().as<std::int32_t>()[t] = whole.documents[from];
      set_element(batch.weights(), t, whole.weights[from]);
    }
  }
}

/// Returns an element of an untrained parameter: matrices +-0.35, biases +-0.1, norms 1 +- 0.1.
inline double test_weight(int id, const std::string& name, std::int64_t element) {
  const double u = uniform(static_cast<std::uint64_t>(id), static_cast<std::uint64_t>(element));
  if (name.ends_with("norm.weight")) return 1.0 + 0.1 * u;
  return (name.ends_with(".bias") ? 0.1 : 0.35) * u;
}

/// Returns the elements of a tensor on any device.
inline std::vector<double> elements(Stream& stream, const TensorView& view) {
  if (view.device.is_cpu()) return elements(view);
  std::vector<double> storage(view.numel());  // large enough for any dtype
  const TensorView host{storage.data(), view.shape, view.dtype, Device::cpu()};
  copy(stream, host, view);
  return elements(host);
}

inline void set_test_weights(Stream& stream, ParameterStore& parameters) {
  parameters.clear_weights();
  const auto& all = parameters.table().all();
  for (int id = 0; id < static_cast<int>(all.size()); ++id) {
    const TensorView weight = parameters.weight(id).flat();
    std::vector<double> storage(weight.numel());
    const TensorView host{storage.data(), weight.shape, weight.dtype, Device::cpu()};
    for (std::int64_t i = 0; i < host.numel(); ++i) set_element(host, i, test_weight(id, all[id].name, i));
    copy(stream, weight, host);
    stream.synchronize();
  }
}

struct RunOptions {
  int ranks = 1;
  Layout layout = Layout::contiguous;
  DType dtype = DType::float64;
  Recompute recompute = Recompute::none;
  std::int64_t feedforward_chunk = 5;
  std::int64_t loss_chunk = 4;
  int threads = 1;
  Device device = Device::cpu();
  bool offload = false;
  std::vector<std::string> trainable = {};
  std::int64_t audit_rows = 0;
  std::function<std::unique_ptr<Communicator>(Communicator&)> around = {};  // wraps the ring's communicator
};

/// Returns the shape for batches like these, on one rank of options.ranks.
inline ExecutionShape shape_of(const RunOptions& options, const Sequences& largest, int rank, bool evaluates = true) {
  const std::int64_t T = token_count(shard_segments(options.layout, largest.S, options.ranks, rank));
  const std::int64_t most = (largest.S + options.ranks - 1) / options.ranks;
  return {.ring_size = options.ranks,
          .max_sequences = largest.B,
          .max_tokens = T,
          .max_evaluation_sequences = largest.B,
          .max_evaluation_tokens = evaluates ? T : 0,
          .max_ring_tokens = most,
          .max_evaluation_ring_tokens = evaluates ? most : 0,
          .dtype = options.dtype,
          .recompute = options.recompute,
          .offload = options.offload,
          .feedforward_chunk = options.feedforward_chunk,
          .loss_chunk = options.loss_chunk,
          .documents = largest.has_documents,
          .audit_rows = options.audit_rows};
}

/// The tensors that a rank of a model would allocate.
struct Plan {
  MemoryUse use;
  std::vector<PlannedTensor> tensors;
};
inline Plan plan(const ModelConfig& config, const ExecutionShape& shape, const std::vector<std::string>& trainable = {},
                 bool trains = true) {
  ThreadPool pool(1);
  Allocator allocator(Device::cpu(), Allocator::Mode::plan);
  ComputeDevice compute(allocator, pool, nullptr);
  const ParameterTable table = describe_parameters(model_spec(config), trainable).table;
  ParameterStore parameters(allocator, table, compute.stream(), {.dtype = shape.dtype, .gradients = trains});
  const auto model = make_transformer(model_spec(config), shape, allocator, parameters, compute.stream(), nullptr);
  return {allocator.peak(), allocator.live()};
}

/// All objects of one rank of a test, available to its body.
struct RankModel {
  RankModel(const ModelConfig& config, const RunOptions& run_options, const Sequences& largest,
            Communicator& ring_ranks)
      : options(run_options),
        sequence_group(ring_ranks),
        table(describe_parameters(model_spec(config), run_options.trainable).table),
        pool(options.threads),
        allocator(options.device),
        compute(allocator, pool, nullptr),
        stream(compute.stream()),
        parameters(allocator, table, stream, {.dtype = options.dtype, .gradients = true}),
        batch(allocator.host(), largest.B, (largest.S + options.ranks - 1) / options.ranks, options.dtype),
        transformer(make_transformer(model_spec(config), shape_of(options, largest, sequence_group.rank()), allocator,
                                     parameters, stream, ordered(sequence_group, stream))),
        model(*transformer) {
    set_test_weights(stream, parameters);
    parameters.begin_step();
  }
  void train(const Sequences& sequences, double denominator) {
    model.wait_for_batch();
    cut(batch, sequences, options.layout, options.ranks, sequence_group.rank());
    model.train_step(batch, denominator, /*last=*/false);
  }
  /// Returns the nll of this rank's tokens.
  std::vector<double> evaluate(const Sequences& sequences) {
    cut(batch, sequences, options.layout, options.ranks, sequence_group.rank());
    std::vector<double> nll(batch.B * batch.T, -1.0);
    model.evaluate(batch, host_view(nll.data(), {batch.B, batch.T}));
    return nll;
  }

  static Communicator* ordered(Communicator& ranks, Stream& stream) {
    ranks.set_stream(stream);
    return &ranks;
  }

  RunOptions options;
  Communicator& sequence_group;
  ParameterTable table;
  ThreadPool pool;
  Allocator allocator;
  ComputeDevice compute;
  Stream& stream;
  ParameterStore parameters;
  Batch batch;
  const std::unique_ptr<Model> transformer;
  Model& model;
};

/// Calls body on every rank of a ring.
inline void on_ring(const ModelConfig& config, const RunOptions& options, const Sequences& largest,
                    const std::function<void(RankModel&)>& body) {
  launch_threads({.ranks = options.ranks, .timeout_seconds = 120}, [&](Communicator& world) {
    const std::unique_ptr<Communicator> outer = options.around ? options.around(world) : nullptr;
    RankModel rank(config, options, largest, outer ? *outer : world);
    body(rank);
  });
}

/// Returns a rank's gradients of trained parameters, by name.
inline std::map<std::string, std::vector<double>> trained_gradients(RankModel& rank) {
  std::map<std::string, std::vector<double>> gradients;
  for (int id = 0; id < static_cast<int>(rank.table.all().size()); ++id) {
    if (rank.parameters.trains(id)) gradients[rank.table[id].name] = elements(rank.parameters.gradient(id));
  }
  return gradients;
}

/// The results of a ring for one micro-batch.
struct RunResult {
  double loss_sum = 0;                       // over ranks, in rank order
  std::vector<double> gradients;             // flat, summed over ranks in rank order
  std::vector<double> rank_losses;           // [N]
  std::vector<std::vector<double>> by_rank;  // gradients of each
};

/// Runs one train_step and joins the ranks' results. after: called with each rank at the end, one at a time.
inline RunResult run_training(const ModelConfig& config, const RunOptions& options, const Sequences& sequences,
                              double denominator, const std::function<void(const RankModel&)>& after = {}) {
  std::mutex mutex;
  RunResult result;
  const auto N = static_cast<std::size_t>(options.ranks);
  result.rank_losses.resize(N);
  result.by_rank.resize(N);
  on_ring(config, options, sequences, [&](RankModel& rank) {
    const auto r = static_cast<std::size_t>(rank.sequence_group.rank());
    rank.train(sequences, denominator);
    result.rank_losses[r] = rank.model.take_loss_sum();
    result.by_rank[r] = elements(rank.stream, flat_gradients(rank.parameters));
    const std::lock_guard lock(mutex);
    if (after) after(rank);
  });
  result.gradients.assign(result.by_rank[0].size(), 0.0);
  for (std::size_t r = 0; r < N; ++r) {
    result.loss_sum += result.rank_losses[r];
    for (std::size_t i = 0; i < result.gradients.size(); ++i) result.gradients[i] += result.by_rank[r][i];
  }
  return result;
}

/// Runs one evaluation: nll of the whole sequences [B * S], and the loss sum. change: may change the weights first.
struct EvaluationResult {
  double loss_sum = 0;
  std::vector<double> nll;
};
inline EvaluationResult run_evaluation(const ModelConfig& config, const RunOptions& options, const Sequences& sequences,
                                       const std::function<void(ParameterStore&)>& change = {}) {
  EvaluationResult result;
  result.nll.assign(sequences.B * sequences.S, -1.0);
  std::vector<double> losses(options.ranks);
  on_ring(config, options, sequences, [&](RankModel& rank) {
    if (change) change(rank.parameters);
    const std::vector<double> nll = rank.evaluate(sequences);
    for (std::int64_t b = 0, t = 0; b < rank.batch.B; ++b) {
      for (std::int64_t i = 0; i < rank.batch.T; ++i, ++t) {
        const std::int64_t at = b * sequences.S + position_of(rank.batch.segments, i);
        result.nll[at] = nll[t];
      }
    }
    losses[rank.sequence_group.rank()] = rank.model.take_loss_sum();
  });
  for (double loss : losses) result.loss_sum += loss;
  return result;
}

/// Returns max|a - b| / max|b|.
inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    // A NaN counts as the largest possible difference.
    const double here = a[i] > b[i] ? a[i] - b[i] : b[i] - a[i];
    if (!(here <= difference)) difference = here == here ? here : 1e300;
    largest = std::max(largest, b[i] < 0 ? -b[i] : b[i]);
  }
  return largest > 0 ? difference / largest : difference;
}

inline ModelConfig small_llama() {
  ModelConfig config;
  config.vocab_size = 31;
  config.hidden_size = 12;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 6;
  config.intermediate_size = 18;
  config.rope_theta = 10000.0;
  return config;
}
/// Returns a small model of an architecture.
inline ModelConfig small_model(Architecture architecture) {
  ModelConfig config = small_llama();
  config.architecture = architecture;
  config.max_position_embeddings = 64;
  if (model_spec(config).positions != Positions::learned) {
    config.max_position_embeddings = 0;
  } else {
    config.num_key_value_heads = 4;  // as in such models, with a head size that rotary heads cannot have
    config.head_dim = 3;
  }
  // Other properties of such models: layers that differ.
  if (architecture == Architecture::smollm3) {
    config.layer_positions = {LayerPositions::rope, LayerPositions::rope, LayerPositions::none};
  }
  if (architecture == Architecture::olmo3 || architecture == Architecture::gemma3_text ||
      architecture == Architecture::gemma2) {
    config.sliding_window = 5;
    config.layer_types = {LayerType::sliding_attention, LayerType::full_attention};
  }
  if (architecture == Architecture::gemma3_text) {
    config.sliding_rope_theta = 100;
    config.query_pre_attn_scalar = 9;
  }
  if (architecture == Architecture::gemma2) {
    config.attention_softcap = 3;
    config.final_softcap = 4;
    config.query_pre_attn_scalar = 5;
  }
  if (architecture == Architecture::granite) {
    config.embedding_multiplier = 3;
    config.residual_multiplier = 0.3;
    config.logits_scaling = 1.7;
    config.query_pre_attn_scalar = 7;
  }
  return config;
}
inline ModelConfig small_gpt2() {
  return small_model(Architecture::gpt2);
}

}  // namespace ringtrain::testing
