#include "layers/model/transformer.h"

#include <algorithm>

#include "framework/dump/tensor_dump.h"
#include "layers/activations.h"
#include "layers/block.h"
#include "layers/device_batch.h"
#include "layers/embedding.h"
#include "layers/head.h"
#include "layers/logits_pass.h"
#include "layers/model_parameters.h"
#include "parallel/ring/ring.h"
#include "parallel/store_context.h"

namespace ringtrain {

namespace {

RingCapacity ring_capacity(const ModelSpec& spec, const ExecutionShape& shape, bool trains) {
  const std::int64_t training = shape.max_sequences * shape.max_ring_tokens;
  return {.tokens = std::max(training, shape.max_evaluation_sequences * shape.max_evaluation_ring_tokens),
          .gradient_tokens = training,
          .G = spec.num_key_value_heads,
          .D = spec.head_dim,
          .dtype = shape.dtype,
          .backward = trains,
          .documents = shape.documents};
}

std::vector<AttentionMask> different_masks(const ModelSpec& spec) {
  std::vector<AttentionMask> masks;
  for (const MaskedLayers& layers : layers_by_mask(spec.layers)) masks.push_back(layers.mask);
  return masks;
}

AuditShape audit_shape(const ModelSpec& spec, const ExecutionShape& shape) {
  AuditShape audit{.rows = shape.audit_rows,
                   .layers = {},
                   .dtype = shape.dtype,
                   .max_ring_tokens = shape.max_ring_tokens,
                   .documents = shape.documents};
  for (std::int64_t i = 0; i < spec.num_hidden_layers(); ++i) audit.layers.push_back(attention_shape(spec, i));
  return audit;
}

class Transformer final : public Model {
 public:
  Transformer(const ModelSpec& spec, const ExecutionShape& shape, Allocator& allocator,
              ParameterStore& model_parameters, Stream& model_stream, Communicator* sequence_group, const ModelIds& ids,
              const std::vector<LayerInsertion>& layers)
      : spec_(spec),
        shape_(shape),
        masks_(different_masks(spec)),
        parameters_(model_parameters),
        stream_(model_stream),
        ids_(ids),
        lowest_(parameters_.has_gradients() ? parameters_.table().lowest_trained() : 0),
        first_trained_(std::clamp<std::int64_t>(lowest_ - 1, 0, spec.num_hidden_layers() - 1)),
        activations_(allocator, spec, shape, spec.num_hidden_layers() - first_trained_, parameters_.has_gradients()),
        batch_(allocator, spec, shape, Activations::max_batch_tokens(shape)),
        ring_(allocator, sequence_group, shape.ring_size, ring_capacity(spec, shape, parameters_.has_gradients())),
        audit_(allocator, audit_shape(spec, shape)),
        attention_workspace_(
            allocator.make(Tag::workspace, "attention workspace", DType::uint8,
                           {static_cast<std::int64_t>(RingAttention::workspace_bytes(stream_, spec, shape))})),
        feedforward_workspace_(allocator, spec, shape, activations_.saved(), parameters_.has_gradients()),
        lora_workspace_(allocator, spec, shape),
        embedding_(spec, parameters_, ids_),
        head_(allocator, spec, shape, Activations::max_batch_tokens(shape), parameters_, ids_) {
    for (const BlockIds& block : ids_.blocks) {
      blocks_.emplace_back(spec, parameters_, block, ring_, audit_, attention_workspace_.view(), feedforward_workspace_,
                           lora_workspace_, shape.deterministic);
    }
    inserted_.resize(blocks_.size());
    for (std::size_t i = 0; i < layers.size(); ++i) {
      auto layer = layers[i].make({.spec = spec_,
                                   .shape = shape_,
                                   .allocator = allocator,
                                   .parameters = parameters_,
                                   .stream = stream_,
                                   .sequence_group = sequence_group,
                                   .ids = ids_.inserted[i],
                                   .block = layers[i].behind});
      if (!layer) fail(ExitCode::usage, "LayerInsertion::make returned null, for block {}", layers[i].behind);
      inserted_[static_cast<std::size_t>(layers[i].behind)].push_back(std::move(layer));
    }
  }

  void set_ropes(std::span<const RopeSpec> ropes) override { batch_.set_ropes(ropes); }

  void train_step(const Batch& batch, double denominator, bool last) override {
    if (!parameters_.has_gradients()) {
      fail(ExitCode::usage, "Transformer::train_step: the store was made without StoreOptions::gradients");
    }
    load(batch);
    audit_.begin_micro_batch(batch);
    const TensorView output = run_forward(/*training=*/true);
    parameters_.begin_backward(last);
    const bool has_tokens = batch_.tokens() > 0;  // without any tokens, layers write nothing
    const TensorView gradient = tensors(blocks_.size() - 1, true).residual_gradient;
    head_.train(stream_, batch_, output, gradient, denominator);
    parameters_.finish(ids_.head_bucket, has_tokens);
    for (std::size_t layer = blocks_.size(); layer-- > 0 && blocks_[layer].bucket() >= lowest_;) {
      if (blocks_[layer].bucket() > std::max(lowest_, 1)) parameters_.prefetch(blocks_[layer].bucket() - 1);
      run_inserted_backward(layer, gradient);
      activations_.before_backward(kept(layer));
      blocks_[layer].backward(stream_, batch_, tensors(layer, true), activations_.saved());
      parameters_.finish(blocks_[layer].bucket(), has_tokens);
    }
    if (lowest_ == 0) {
      embedding_.backward(stream_, batch_, gradient);
      parameters_.finish(0, has_tokens);
    }
  }

  void wait_for_batch() override { batch_.wait_for_copies(); }

  void evaluate(const Batch& batch, const TensorView& nll) override {
    if (!nll.empty() && (nll.dtype != DType::float64 || nll.numel() != batch.B * batch.T)) {
      fail(ExitCode::usage, "Transformer::evaluate: nll is {} of {}, but must be [B = {}, T = {}] of float64",
           nll.shape.to_string(), name_of(nll.dtype), batch.B, batch.T);
    }
    load(batch);
    const TensorView output = run_forward(/*training=*/false);
    head_.evaluate(stream_, batch_, output, nll.empty() ? TensorView{} : nll.flat());
    if (!nll.empty()) stream_.synchronize();
  }

  LogitsPass begin_logits(const Batch& batch) override {
    load(batch);
    return head_.begin_logits(stream_, run_forward(/*training=*/false));
  }

  void evaluate_nothing() override {
    for (int bucket = 0; bucket < ids_.head_bucket; ++bucket) {
      const WeightsGuard weights(parameters_, bucket);
      parameters_.prefetch(bucket + 1);
    }
    head_.hold_weights();
  }

  void prefill(const Batch& batch, KeyValueCache& cache) override {
    if (batch.B != 1 || batch.has_documents) {
      fail(ExitCode::usage, "Transformer::prefill: a prompt must be one sequence of one document, but B is {}{}",
           batch.B, batch.has_documents ? ", with documents" : "");
    }
    for (std::size_t layer = 0; layer < inserted_.size(); ++layer) {
      for (const auto& inserted : inserted_[layer]) {
        if (inserted->works_by_token()) continue;
        fail(ExitCode::usage,
             "this model does not generate: works_by_token() of the program's layer after block {} returns false",
             layer);
      }
    }
    load(batch);
    run_forward(/*training=*/false, &cache);
  }

  TensorView decode(const Batch& batch, KeyValueCache& cache, bool wants_logits) override {
    if (batch.B != 1 || batch.T != 1) {
      fail(ExitCode::usage, "Transformer::decode: a step must have one token, but B is {} and T is {}", batch.B,
           batch.T);
    }
    batch_.load(stream_, batch);
    cache.begin_token(batch.segments[0].start);
    const TensorView output = run_forward(/*training=*/false, &cache);
    if (!wants_logits) {
      head_.hold_weights();
      return {};
    }
    return head_.begin_logits(stream_, output).rows(0, 1).flat();
  }

  double take_loss_sum() override { return head_.take_loss_sum(stream_); }

  void take_loss_sum(const TensorView& sum) override { head_.take_loss_sum(stream_, sum); }

  void forget_loss_sum() override { head_.forget_loss_sum(); }

  AttentionAudit& audit() override { return audit_; }

  RingLoads take_ring_loads() override { return ring_.take_loads(); }

 private:
  void load(const Batch& host) {
    ensure(!host.has_documents || std::ssize(host.document_starts) == host.B, "documents begin somewhere");
    batch_.load(stream_, host);
    ring_.begin(masks_, host.extents, host.ring_segments, host.B, host.document_starts);
  }
  /// Returns a layer's index among those that backward visits; negative: backward does not visit it.
  std::int64_t kept(std::size_t layer) const { return static_cast<std::int64_t>(layer) - first_trained_; }
  BlockTensors tensors(std::size_t layer, bool training) const {
    const std::int64_t index = kept(layer);
    return activations_.block(std::max<std::int64_t>(0, index), batch_.B(), batch_.T(), training && index >= 0);
  }
  /// Runs a program's own layers after a block: they change the residual stream in place.
  void run_inserted_forward(std::size_t layer, const TensorView& x, bool training) {
    if (inserted_[layer].empty()) return;
    const Span span(stream_.trace(), "inserted layers", {{"layer", static_cast<std::int64_t>(layer)}});
    const WeightsGuard weights(parameters_, blocks_[layer].bucket());
    for (const auto& inserted : inserted_[layer]) inserted->forward(stream_, batch_, x, training);
    dump(stream_, {.name = "inserted_output", .layer = static_cast<int>(layer)}, x);
  }
  void run_inserted_backward(std::size_t layer, const TensorView& gradient) {
    if (inserted_[layer].empty()) return;
    const Span span(stream_.trace(), "inserted layers backward", {{"layer", static_cast<std::int64_t>(layer)}});
    const WeightsGuard weights(parameters_, blocks_[layer].bucket());
    dump(stream_, {.name = "inserted_output", .layer = static_cast<int>(layer), .gradient = true}, gradient);
    for (std::size_t i = inserted_[layer].size(); i-- > 0;) inserted_[layer][i]->backward(stream_, batch_, gradient);
  }
  /// Returns the residual stream after the last block.
  TensorView run_forward(bool training, KeyValueCache* cache = nullptr) {
    parameters_.prefetch(0);
    parameters_.prefetch(blocks_[0].bucket());
    embedding_.forward(stream_, batch_, tensors(0, training).input);
    for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
      const bool keeps = training && kept(layer) >= 0;
      parameters_.prefetch(blocks_[layer].bucket() + 1);  // gathers while this layer computes
      if (keeps) activations_.before_forward(stream_, kept(layer));
      blocks_[layer].forward(stream_, batch_, tensors(layer, training), cache);
      run_inserted_forward(layer, tensors(layer, training).output, keeps);
      if (keeps) activations_.after_forward(kept(layer));
    }
    return tensors(blocks_.size() - 1, training).output;
  }

  const ModelSpec spec_;  // for inserted layers, like shape_
  const ExecutionShape shape_;
  const std::vector<AttentionMask> masks_;  // the distinct ones: the ring has a schedule for each
  ParameterStore& parameters_;
  Stream& stream_;
  const ModelIds ids_;
  const int lowest_;                  // the bucket at which backward ends
  const std::int64_t first_trained_;  // the lowest layer that backward visits; the last layer if it ends in the head
  Activations activations_;
  DeviceBatch batch_;
  Ring ring_;
  AttentionAudit audit_;
  Tensor attention_workspace_;
  FeedforwardWorkspace feedforward_workspace_;
  LoraWorkspace lora_workspace_;
  Embedding embedding_;
  std::vector<Block> blocks_;
  std::vector<std::vector<std::unique_ptr<InsertedLayer>>> inserted_;  // after each block
  Head head_;
};

}  // namespace

std::unique_ptr<Model> make_transformer(const ModelSpec& spec, const ExecutionShape& shape, Allocator& allocator,
                                        ParameterStore& parameters, Stream& stream, Communicator* sequence_group,
                                        const std::vector<LayerInsertion>& layers) {
  check_spec(spec, stream.on_cuda());
  if (sequence_group == nullptr ? !allocator.planning() : sequence_group->size() != shape.ring_size) {
    fail(ExitCode::usage, "Transformer: the ring has {} ranks; the communicator has {}; only a plan needs none",
         shape.ring_size, sequence_group != nullptr ? sequence_group->size() : 0);
  }
  const auto [table, ids] = describe_parameters(spec, {}, layers);
  if (parameters.table().count() != table.count()) {
    fail(ExitCode::usage, "Transformer: the store's table has {} weights, but this model {}: they belong to two models",
         parameters.table().count(), table.count());
  }
  return std::make_unique<Transformer>(spec, shape, allocator, parameters, stream, sequence_group, ids, layers);
}

}  // namespace ringtrain
