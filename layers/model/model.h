// What the trainer, the evaluator, generation, and checkpoints need from any model. The transformer
// (layers/model/transformer.h) is one; a program's own is another. A rank has one model. Its weights and gradients are
// in the rank's ParameterStore, and its memory in the rank's Allocator: a constructor allocates all of it (in plan
// mode: records it), and no call allocates.
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

  /// Makes rotary positions use these ropes from the next batch on: a stage of a run may change them. No communication.
  /// ropes: as many as the config's spec has; a model without rotary positions ignores them.
  virtual void set_ropes(std::span<const RopeSpec> ropes) = 0;
  /// Runs forward and backward of one micro-batch: adds the gradients of sum(weight * nll) / denominator to the
  /// parameters' gradients, and this rank's sum(weight * nll) to the sum that take_loss_sum() returns. May communicate:
  /// all ranks make the same calls. denominator: the sum of weights over dp x sp x accumulation. last: whether this is
  /// the step's last micro-batch; the store then sums the gradients over all ranks (ParameterStore::finish_step).
  virtual void train_step(const Batch& batch, double denominator, bool last) = 0;
  /// Returns when the caller may refill the last call's batch: the device has its own copy.
  virtual void wait_for_batch() = 0;

  /// Runs only forward; adds to the sum that take_loss_sum() returns. nll: empty, or float64 [B, T] host memory that
  /// receives this rank's per-token negative log-likelihoods (0 for a token without a label); they are valid when the
  /// call returns.
  virtual void evaluate(const Batch& batch, const TensorView& nll) = 0;
  /// Takes part in the ranks' joint work in an evaluation on a rank that has no sequence: other ranks may gather
  /// weights from it.
  virtual void evaluate_nothing() = 0;

  /// Runs only forward, up to the logits, which the returned pass provides; the batch must outlive it. Ranks without a
  /// sequence call evaluate_nothing(). Throws Error(usage) for a model without logits to read.
  virtual LogitsPass begin_logits(const Batch& batch);

  /// Runs forward of a prompt (one sequence) up to the last layer's keys and values, and keeps those of all layers in
  /// the cache, which must have been begun with this batch's segments. Throws Error(usage) for a model that cannot
  /// generate.
  virtual void prefill(const Batch& batch, KeyValueCache& cache);
  /// Runs forward of one new token over the tokens in the cache, and adds it to the cache; all ranks pass the same
  /// batch. Returns its logits [V], valid until the next call, or nothing unless wants_logits. Collective over the
  /// ring.
  virtual TensorView decode(const Batch& batch, KeyValueCache& cache, bool wants_logits);

  /// Returns this rank's sum of weight * nll since the last reset (waits for the device), and resets it.
  virtual double take_loss_sum() = 0;
  /// Writes the same into sum, float64 [1] on the host (pinned, or the call waits), valid when the stream has reached
  /// this point.
  virtual void take_loss_sum(const TensorView& sum) = 0;
  /// Resets the sum without reading it.
  virtual void forget_loss_sum() = 0;

  /// Returns the audit of its attention: the caller begins it before the first train_step() of a step, and takes the
  /// report after the last. Throws Error(usage) for a model without one.
  virtual AttentionAudit& audit();
  /// Returns what the ring's passes since the last call did and waited for, and resets it. Returns nothing for a model
  /// without a ring.
  virtual RingLoads take_ring_loads() { return {}; }
};

}  // namespace ringtrain
