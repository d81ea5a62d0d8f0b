// What trainer, evaluator, generation and checkpoints ask of a model, whatever it is made of. The transformer
// (layers/model/transformer.h) is one; a program's own is another. A rank has one model. Its weights and gradients are
// in the rank's ParameterStore, and its memory in the rank's Allocator: a constructor makes all of it (in plan mode:
// records it), and no call allocates.
#pragma once

#include <cstdint>
#include <span>

#include "data/batch.h"
#include "framework/tensor.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

class AttentionAudit;  // layers/audit/attention_audit.h
class KeyValueCache;   // layers/key_value_cache.h
struct LogitsPass;     // layers/logits_pass.h
struct RopeSpec;       // layers/model_spec.h

class Model {
 public:
  virtual ~Model() = default;

  /// Lets rotary positions turn like this from the next batch on: what a stage of a run may change. No communication.
  /// ropes: as many as the spec of the config has; a model without rotary positions ignores them.
  virtual void set_ropes(std::span<const RopeSpec> ropes) = 0;
  /// Sets all weights from (seed, parameter, element): the same on every mesh (initialise_weights does it).
  virtual void initialise(std::uint64_t seed) = 0;
  /// Runs forward and backward of one micro-batch: adds the gradients of sum(weight * nll) / denominator to the
  /// parameters' gradients, and this rank's sum(weight * nll) to what take_loss_sum() returns. May communicate: all
  /// ranks call it alike. denominator: the sum of weights over dp x sp x accumulation. last: of the step's
  /// micro-batches; the store then sums the gradients over all ranks (ParameterStore::finish_step).
  virtual void train_step(const Batch& batch, double denominator, bool last) = 0;
  /// Returns when the batch of the last call may be filled anew: the device has its own copy.
  virtual void wait_for_batch() = 0;

  /// Runs forward alone; adds to what take_loss_sum() returns. If nll is not empty: float64 [B, T] host memory that
  /// receives this rank's per-token negative log-likelihoods (0 where there is no label); they are there when the call
  /// returns.
  virtual void evaluate(const Batch& batch, const TensorView& nll) = 0;
  /// Takes part in what all ranks do together in an evaluation, of a rank that has no sequence: weights may be gathered
  /// from it.
  virtual void evaluate_nothing() = 0;

  /// Runs forward alone, up to the logits, which the returned pass gives; the batch must outlive it. Ranks without a
  /// sequence call evaluate_nothing(). Error(usage) of a model that has none to read.
  virtual LogitsPass begin_logits(const Batch& batch);

  /// Runs forward of a prompt (one sequence) up to the last layer's keys and values, and keeps those of all layers in
  /// the cache, which was begun for this batch's segments. Error(usage) of a model that cannot generate.
  virtual void prefill(const Batch& batch, KeyValueCache& cache);
  /// Runs forward of one new token, of which all ranks have the same batch, over the tokens in the cache, and adds it
  /// there. Returns its logits [V], valid until the next call, or nothing unless wanted. Collective over the ring.
  virtual TensorView decode(const Batch& batch, KeyValueCache& cache, bool wants_logits);

  /// Returns this rank's sum of weight * nll since the last reset (waits for the device), and reset it.
  virtual double take_loss_sum() = 0;
  /// The same into sum, float64 [1] of the host (pinned, or the call waits): there when the stream has got here.
  virtual void take_loss_sum(const TensorView& sum) = 0;
  /// Resets it alone.
  virtual void forget_loss_sum() = 0;

  /// Returns the audit of its attention: begun before the first train_step() of a step, taken after the last.
  /// Error(usage) of a model without one.
  virtual AttentionAudit& audit();
  /// Returns what the ring's passes since the last call did and waited for, and reset it. Nothing of a model without a
  /// ring.
  virtual RingLoads take_ring_loads() { return {}; }
};

}  // namespace ringtrain
