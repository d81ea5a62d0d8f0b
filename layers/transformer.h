// The model: embedding, L blocks, final norm, head and loss, from one block that serves every architecture
// (layers/model_spec.h). Forward and backward are explicit. Everything a step needs is allocated in the constructor (in
// plan mode: recorded), so a step allocates nothing. A layer sees the ring, never a rank.
//
// Accumulation rule: parameter gradients add (over micro-batches; the first of a step overwrites); activation gradients
// overwrite, except the residual stream's, which adds.
#pragma once

#include <memory>

#include "data/batch.h"
#include "framework/stream.h"
#include "layers/audit/attention_audit.h"
#include "layers/execution_shape.h"
#include "layers/key_value_cache.h"
#include "layers/logits_pass.h"
#include "layers/model_spec.h"
#include "parallel/communicator.h"
#include "parallel/parameter_store.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

class Transformer {
 public:
  /// parameters and stream must outlive it. sequence_group: the ranks that share this rank's sequences; null only when
  /// planning.
  Transformer(const ModelSpec& spec, const ExecutionShape& shape, Allocator& allocator, ParameterStore& parameters,
              Stream& stream, Communicator* sequence_group);
  Transformer(const ModelConfig& config, const ExecutionShape& shape, Allocator& allocator, ParameterStore& parameters,
              Stream& stream, Communicator* sequence_group)
      : Transformer(model_spec(config), shape, allocator, parameters, stream, sequence_group) {}
  ~Transformer();

  /// Sets all weights from (seed, parameter, element): the same on every mesh.
  void initialise(std::uint64_t seed);
  /// Runs forward and backward of one micro-batch: adds the gradients of sum(weight * nll) / denominator to the
  /// parameters' gradients, and this rank's sum(weight * nll) to what take_loss_sum() returns. Ring communication in
  /// every layer. denominator: the sum of weights over dp x sp x accumulation. last: of the step's micro-batches; the
  /// store then sums the gradients over all ranks (ParameterStore::finish_step).
  void train_step(const Batch& batch, double denominator, bool last);

  /// Returns when the batch of the last call may be filled anew: the device has its own copy.
  void wait_for_batch();

  /// Runs forward alone; adds to what take_loss_sum() returns. If nll is not empty: float64 [B, T] host memory that
  /// receives this rank's per-token negative log-likelihoods (0 where there is no label); they are there when the call
  /// returns.
  void evaluate(const Batch& batch, const TensorView& nll);
  /// Runs forward alone, up to the logits, which the returned pass gives; the batch must outlive it. Ranks without a
  /// sequence call evaluate_nothing().
  std::unique_ptr<LogitsPass> begin_logits(const Batch& batch);
  /// Takes part in what all ranks do together in an evaluation, of a rank that has no sequence: weights may be gathered
  /// from it.
  void evaluate_nothing();

  /// Runs forward of a prompt (one sequence) up to the last layer's keys and values, and keeps those of all layers in
  /// the cache, which was begun for this batch's segments.
  void prefill(const Batch& batch, KeyValueCache& cache);
  /// Runs forward of one new token, of which all ranks have the same batch, over the tokens in the cache, and adds it
  /// there. Returns its logits [V], valid until the next call, or nothing unless wanted. Collective over the ring.
  TensorView decode(const Batch& batch, KeyValueCache& cache, bool wants_logits);

  /// Returns this rank's sum of weight * nll since the last reset (waits for the device), and reset it.
  double take_loss_sum();
  /// The same into sum, float64 [1] of the host (pinned, or the call waits): there when the stream has got here.
  void take_loss_sum(const TensorView& sum);
  /// Resets it alone.
  void forget_loss_sum();
  /// Returns the audit of its attention: begun before the first train_step() of a step, taken after the last.
  AttentionAudit& audit();
  /// Returns what the ring's passes since the last call did and waited for, and reset it.
  RingLoad take_ring_load();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ringtrain
