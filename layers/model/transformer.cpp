#include "layers/model/transformer.h"

#include <algorithm>
#include <vector>

#include "framework/dump/tensor_dump.h"
#include "kernels/elementwise.h"
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

std::vector<AttentionMask> masks_of_layers(const ModelSpec& spec) {
  std::vector<AttentionMask> masks;
  for (const LayerSpec& layer : spec.layers) masks.push_back(layer.mask);
  return masks;
}

std::vector<AttentionMask> different_masks(const ModelSpec& spec) {
  std::vector<AttentionMask> masks;
  for (const MaskedLayers& of : layers_by_mask(spec.layers)) masks.push_back(of.mask);
  return masks;
}

AuditShape audit_shape(const ModelSpec& spec, const ExecutionShape& shape) {
  return {.rows = shape.audit_rows,
          .H = spec.num_attention_heads,
          .G = spec.num_key_value_heads,
          .D = spec.head_dim,
          .scale = spec.attention_scale,
          .softcap = spec.attention_softcap,
          .masks = masks_of_layers(spec),
          .dtype = shape.dtype,
          .max_ring_tokens = shape.max_ring_tokens,
          .documents = shape.documents};
}

}  // namespace

struct Transformer::State {
  State(const ModelSpec& spec, const ExecutionShape& shape, Allocator& allocator, ParameterStore& model_parameters,
        Stream& model_stream, Communicator* sequence_group, const std::vector<LayerInsertion>& layers)
      : masks(different_masks(spec)),
        parameters(model_parameters),
        stream(model_stream),
        ids(describe_parameters(spec, {}, parameters_of(layers)).ids),
        lowest(parameters.has_gradients() ? parameters.table().lowest_trained() : 0),
        first_trained(std::clamp<std::int64_t>(lowest - 1, 0, spec.num_hidden_layers() - 1)),
        activations(allocator, spec, shape, spec.num_hidden_layers() - first_trained, parameters.has_gradients()),
        batch(allocator, spec, shape, Activations::max_batch_tokens(shape)),
        ring(allocator, sequence_group, shape.ring_size, ring_capacity(spec, shape, parameters.has_gradients())),
        audit(allocator, audit_shape(spec, shape)),
        attention_workspace(
            allocator.make(Tag::workspace, "attention workspace", DType::uint8,
                           {static_cast<std::int64_t>(RingAttention::workspace_bytes(stream, spec, shape))})),
        feedforward_workspace(allocator, spec, shape, activations.saved(), parameters.has_gradients()),
        lora_workspace(allocator, spec, shape),
        embedding(spec, parameters, ids),
        head(allocator, spec, shape, Activations::max_batch_tokens(shape), parameters, ids) {
    for (const BlockIds& block : ids.blocks) {
      blocks.emplace_back(spec, parameters, block, ring, audit, attention_workspace.view(), feedforward_workspace,
                          lora_workspace, shape.deterministic);
    }
    inserted.resize(blocks.size());
    for (std::size_t i = 0; i < layers.size(); ++i) {
      auto layer = layers[i].make({.spec = spec,
                                   .shape = shape,
                                   .allocator = allocator,
                                   .parameters = parameters,
                                   .stream = stream,
                                   .sequence_group = sequence_group,
                                   .ids = ids.inserted[i],
                                   .block = layers[i].behind});
      if (!layer) fail(ExitCode::usage, "the layer behind block {} was not made: make returned none", layers[i].behind);
      inserted[static_cast<std::size_t>(layers[i].behind)].push_back(std::move(layer));
    }
  }

  void load(const Batch& host) {
    ensure(!host.has_documents || std::ssize(host.document_starts) == host.B, "documents begin somewhere");
    batch.load(stream, host);
    ring.begin(masks, host.extents, host.ring_segments, host.B, host.document_starts);
  }
  /// Returns a layer's place among those that backward goes through; below 0: it does not.
  std::int64_t kept(std::size_t layer) const { return static_cast<std::int64_t>(layer) - first_trained; }
  BlockTensors tensors(std::size_t layer, bool training) const {
    const std::int64_t place = kept(layer);
    return activations.block(std::max<std::int64_t>(0, place), batch.B(), batch.T(), training && place >= 0);
  }
  /// The layers of a program's own behind a block change the residual stream in place.
  void run_inserted_forward(std::size_t layer, const TensorView& x, bool training) {
    if (inserted[layer].empty()) return;
    const Span span(stream.trace(), "inserted layers", {{"layer", static_cast<std::int64_t>(layer)}});
    const WeightsGuard weights(parameters, blocks[layer].bucket());
    for (const auto& own : inserted[layer]) own->forward(stream, batch, x, training);
    dump(stream, {.name = "inserted_output", .layer = static_cast<int>(layer)}, x);
  }
  void run_inserted_backward(std::size_t layer, const TensorView& gradient) {
    if (inserted[layer].empty()) return;
    const Span span(stream.trace(), "inserted layers backward", {{"layer", static_cast<std::int64_t>(layer)}});
    const WeightsGuard weights(parameters, blocks[layer].bucket());
    dump(stream, {.name = "inserted_output", .layer = static_cast<int>(layer), .gradient = true}, gradient);
    for (std::size_t i = inserted[layer].size(); i-- > 0;) inserted[layer][i]->backward(stream, batch, gradient);
  }
  /// The next bucket's weights come while this layer is computed.
  void prefetch_next(std::size_t layer) { parameters.prefetch(blocks[layer].bucket() + 1); }
  /// Returns the residual stream after the last block.
  TensorView run_forward(bool training, KeyValueCache* cache = nullptr) {
    parameters.prefetch(0);
    parameters.prefetch(blocks[0].bucket());
    embedding.forward(stream, batch, tensors(0, training).input);
    for (std::size_t layer = 0; layer < blocks.size(); ++layer) {
      const bool keeps = training && kept(layer) >= 0;
      prefetch_next(layer);
      if (keeps) activations.before_forward(stream, kept(layer));
      blocks[layer].forward(stream, batch, tensors(layer, training), cache);
      run_inserted_forward(layer, tensors(layer, training).output, keeps);
      if (keeps) activations.after_forward(kept(layer));
    }
    return tensors(blocks.size() - 1, training).output;
  }

  const std::vector<AttentionMask> masks;  // that differ: the ring has a schedule for each
  ParameterStore& parameters;
  Stream& stream;
  const ModelIds ids;
  const int lowest;                  // the bucket with which backward ends
  const std::int64_t first_trained;  // the lowest layer that backward goes through; the last if it ends in the head
  Activations activations;
  DeviceBatch batch;
  Ring ring;
  AttentionAudit audit;
  Tensor attention_workspace;
  FeedforwardWorkspace feedforward_workspace;
  LoraWorkspace lora_workspace;
  Embedding embedding;
  std::vector<Block> blocks;
  std::vector<std::vector<std::unique_ptr<InsertedLayer>>> inserted;  // behind each block
  Head head;
};

Transformer::Transformer(const ModelSpec& spec, const ExecutionShape& shape, Allocator& allocator,
                         ParameterStore& parameters, Stream& stream, Communicator* sequence_group,
                         const std::vector<LayerInsertion>& layers) {
  check_spec(spec);
  if (sequence_group == nullptr ? !allocator.planning() : sequence_group->size() != shape.ring_size) {
    fail(ExitCode::usage, "Transformer: a ring of {} ranks on a communicator of {}; only a plan has none",
         shape.ring_size, sequence_group != nullptr ? sequence_group->size() : 0);
  }
  const std::int64_t own = describe_parameters(spec, {}, parameters_of(layers)).table.count();
  if (parameters.table().count() != own) {
    fail(ExitCode::usage, "Transformer: the store's table has {} weights, but this model {}: they are of two models",
         parameters.table().count(), own);
  }
  state_ = std::make_unique<State>(spec, shape, allocator, parameters, stream, sequence_group, layers);
}

Transformer::~Transformer() = default;

void Transformer::set_ropes(std::span<const RopeSpec> ropes) {
  state_->batch.set_ropes(ropes);
}

void Transformer::initialise(std::uint64_t seed) {
  initialise_weights(state_->stream, state_->parameters, seed);
}

void Transformer::train_step(const Batch& batch, double denominator, bool last) {
  State& s = *state_;
  if (!s.parameters.has_gradients()) {
    fail(ExitCode::usage, "Transformer::train_step: the store was made without StoreOptions::gradients");
  }
  s.load(batch);
  s.audit.begin_micro_batch(batch);
  const TensorView output = s.run_forward(/*training=*/true);
  s.parameters.begin_backward(last);
  const bool has_tokens = s.batch.tokens() > 0;  // without any, layers write nothing
  const TensorView gradient = s.tensors(s.blocks.size() - 1, true).residual_gradient;
  s.head.train(s.stream, s.batch, output, gradient, denominator);
  s.parameters.finish(s.ids.head_bucket, has_tokens);
  for (std::size_t layer = s.blocks.size(); layer-- > 0 && s.blocks[layer].bucket() >= s.lowest;) {
    if (s.blocks[layer].bucket() > std::max(s.lowest, 1)) s.parameters.prefetch(s.blocks[layer].bucket() - 1);
    s.run_inserted_backward(layer, gradient);
    s.activations.before_backward(s.kept(layer));
    s.blocks[layer].backward(s.stream, s.batch, s.tensors(layer, true), s.activations.saved());
    s.parameters.finish(s.blocks[layer].bucket(), has_tokens);
  }
  if (s.lowest == 0) {
    s.embedding.backward(s.stream, s.batch, gradient);
    s.parameters.finish(0, has_tokens);
  }
}

void Transformer::wait_for_batch() {
  state_->batch.wait_for_copies();
}

void Transformer::evaluate(const Batch& batch, const TensorView& nll) {
  State& s = *state_;
  if (!nll.empty() && (nll.dtype != DType::float64 || nll.numel() != batch.B * batch.T)) {
    fail(ExitCode::usage, "Transformer::evaluate: nll is {} of {}, but must be [B = {}, T = {}] of float64",
         nll.shape.to_string(), name_of(nll.dtype), batch.B, batch.T);
  }
  s.load(batch);
  const TensorView output = s.run_forward(/*training=*/false);
  s.head.evaluate(s.stream, s.batch, output, nll.empty() ? TensorView{} : nll.flat());
  if (!nll.empty()) s.stream.synchronize();
}

std::unique_ptr<LogitsPass> Transformer::begin_logits(const Batch& batch) {
  State& s = *state_;
  s.load(batch);
  return s.head.begin_logits(s.stream, s.run_forward(/*training=*/false));
}

void Transformer::evaluate_nothing() {
  State& s = *state_;
  for (int bucket = 0; bucket < s.ids.head_bucket; ++bucket) {
    const WeightsGuard weights(s.parameters, bucket);
    s.parameters.prefetch(bucket + 1);
  }
  s.head.hold_weights();
}

void Transformer::prefill(const Batch& batch, KeyValueCache& cache) {
  if (batch.B != 1 || batch.has_documents) {
    fail(ExitCode::usage, "Transformer::prefill: the batch has {} sequences{}, but a prompt is one of one document",
         batch.B, batch.has_documents ? " with documents" : "");
  }
  for (std::size_t layer = 0; layer < state_->inserted.size(); ++layer) {
    for (const auto& own : state_->inserted[layer]) {
      if (own->works_by_token()) continue;
      fail(ExitCode::usage,
           "this model does not generate: its program's layer behind block {} does not say that it works by token",
           layer);
    }
  }
  state_->load(batch);
  state_->run_forward(/*training=*/false, &cache);
}

TensorView Transformer::decode(const Batch& batch, KeyValueCache& cache, bool wants_logits) {
  State& s = *state_;
  if (batch.B != 1 || batch.T != 1) {
    fail(ExitCode::usage, "Transformer::decode: the batch has {} sequences of {} tokens, but a step has one token",
         batch.B, batch.T);
  }
  s.batch.load(s.stream, batch);
  cache.begin_token(batch.segments[0].start);
  s.embedding.forward(s.stream, s.batch, s.tensors(0, false).input);
  for (std::size_t layer = 0; layer < s.blocks.size(); ++layer) {
    s.prefetch_next(layer);
    s.blocks[layer].decode(s.stream, s.batch, s.tensors(0, false), cache);
    s.run_inserted_forward(layer, s.tensors(0, false).output, /*training=*/false);
  }
  if (!wants_logits) {
    s.head.hold_weights();
    return {};
  }
  return s.head.begin_logits(s.stream, s.tensors(0, false).output)->rows(0, 1).flat();
}

double Transformer::take_loss_sum() {
  return state_->head.take_loss_sum(state_->stream);
}

void Transformer::take_loss_sum(const TensorView& sum) {
  state_->head.take_loss_sum(state_->stream, sum);
}

void Transformer::forget_loss_sum() {
  state_->head.forget_loss_sum();
}

AttentionAudit& Transformer::audit() {
  return state_->audit;
}

RingLoads Transformer::take_ring_loads() {
  return state_->ring.take_loads();
}

}  // namespace ringtrain
