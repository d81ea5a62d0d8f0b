// The model: embedding, L blocks, final norm, head and loss, from one block that serves every architecture
// (layers/model_spec.h). Forward and backward are explicit. Everything a step needs is allocated in the constructor (in
// plan mode: recorded), so a step allocates nothing. A layer sees the ring, never a rank.
//
// Accumulation rule: parameter gradients add (over micro-batches; the first of a step overwrites); activation gradients
// overwrite, except the residual stream's, which adds.
#pragma once

#include <memory>
#include <vector>

#include "framework/stream.h"
#include "layers/execution_shape.h"
#include "layers/model/inserted_layer.h"
#include "layers/model/model.h"
#include "layers/model_spec.h"
#include "parallel/communicator.h"
#include "parallel/parameter_store.h"

namespace ringtrain {

class Transformer : public Model {
 public:
  /// parameters and stream must outlive it. sequence_group: the ranks that share this rank's sequences; null only when
  /// planning.
  /// layers: of a program's own, behind its blocks; the store's table has their parameters.
  Transformer(const ModelSpec& spec, const ExecutionShape& shape, Allocator& allocator, ParameterStore& parameters,
              Stream& stream, Communicator* sequence_group, const std::vector<LayerInsertion>& layers = {});
  /// The same, of a config's own model.
  Transformer(const ModelConfig& config, const ExecutionShape& shape, Allocator& allocator, ParameterStore& parameters,
              Stream& stream, Communicator* sequence_group)
      : Transformer(model_spec(config), shape, allocator, parameters, stream, sequence_group) {}
  ~Transformer() override;

  /// As Model says; train_step communicates over the ring in every layer.
  void set_ropes(std::span<const RopeSpec> ropes) override;
  void initialise(std::uint64_t seed) override;
  void train_step(const Batch& batch, double denominator, bool last) override;
  void wait_for_batch() override;
  void evaluate(const Batch& batch, const TensorView& nll) override;
  void evaluate_nothing() override;
  std::unique_ptr<LogitsPass> begin_logits(const Batch& batch) override;
  void prefill(const Batch& batch, KeyValueCache& cache) override;
  TensorView decode(const Batch& batch, KeyValueCache& cache, bool wants_logits) override;
  double take_loss_sum() override;
  void take_loss_sum(const TensorView& sum) override;
  void forget_loss_sum() override;
  AttentionAudit& audit() override;
  RingLoads take_ring_loads() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ringtrain
