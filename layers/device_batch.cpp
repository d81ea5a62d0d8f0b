#include "layers/device_batch.h"

#include <algorithm>

#include "framework/dump/tensor_dump.h"
#include "kernels/check.h"
#include "kernels/elementwise.h"

namespace ringtrain {

namespace {

/// Returns the length of the whole sequences of which a batch is a shard. A token that continues a sequence counts
/// together with the tokens before it.
std::int64_t sequence_length(const Batch& batch) {
  std::int64_t length = 0;
  const auto reach = [&](const SegmentList& segments) {
    for (const Segment& segment : segments) length = std::max(length, segment.last() + 1);
  };
  for (const SegmentList& shard : batch.ring_segments) reach(shard);
  reach(batch.segments);
  return length;
}

}  // namespace

DeviceBatch::DeviceBatch(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape, std::int64_t tokens)
    : head_dim_(spec.head_dim),
      vocab_size_(spec.vocab_size),
      table_positions_(spec.positions == Positions::learned ? spec.max_position_embeddings : 0) {
  const auto make = [&](const char* name, DType dtype) {
    return allocator.make(Tag::activations, name, dtype, {tokens});
  };
  tokens_ = make("batch tokens", DType::int32);
  labels_ = make("batch labels", DType::int32);
  positions_ = make("batch positions", DType::int32);
  if (shape.documents) documents_ = make("batch documents", DType::int32);
  weights_ = make("batch weights", accumulator(shape.dtype));
  ropes_.resize(spec.ropes.size());
  for (Rope& rope : ropes_) {
    rope.table = allocator.make(Tag::activations, "rope table", accumulator(shape.dtype), {tokens, head_dim_});
  }
  set_ropes(spec.ropes);
}

void DeviceBatch::set_ropes(std::span<const RopeSpec> ropes) {
  ensure(ropes.size() == ropes_.size(), "a model's rotary positions stay as many as they are");
  for (std::size_t i = 0; i < ropes.size(); ++i) ropes_[i].spec = ropes[i];
}

void DeviceBatch::load(Stream& stream, const Batch& batch) {
  if (batch.has_documents && documents_.empty()) {
    fail(ExitCode::usage, "the batch has documents, but the model was made without ExecutionShape::documents");
  }
  check_ids(batch.tokens(), vocab_size_, "a batch has tokens of the model");
  check_ids(batch.labels(), vocab_size_, "a batch has labels of the model, or -1", /*lowest=*/-1);
  if (table_positions_ > 0) check_ids(batch.positions(), table_positions_, "a batch has positions of the model");
  host_ = &batch;
  B_ = batch.B;
  T_ = batch.T;
  copy(stream, token_ids(), batch.tokens().flat());
  copy(stream, labels(), batch.labels().flat());
  copy(stream, position_ids(), batch.positions().flat());
  copy(stream, weights(), batch.weights().flat());
  if (batch.has_documents) copy(stream, documents(), batch.documents());
  copied_ = record_event(stream);
  dump(stream, {.name = "input.tokens"}, token_ids());
  dump(stream, {.name = "input.labels"}, labels());
  dump(stream, {.name = "input.positions"}, position_ids());
  dump(stream, {.name = "input.weights"}, weights());
  if (batch.has_documents) dump(stream, {.name = "input.documents"}, documents().flat());
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    const auto& [theta, scaling] = ropes_[i].spec;
    ringtrain::rope_table(stream, rope_table(static_cast<int>(i)), position_ids(),
                          rope_frequencies(head_dim_, theta, scaling, sequence_length(batch)));
  }
}

bool DeviceBatch::has_target(std::int64_t begin, std::int64_t end) const {
  const std::int32_t* labels = host_->labels().as<std::int32_t>();
  return std::any_of(labels + begin, labels + end, [](std::int32_t label) { return label >= 0; });
}

TensorView DeviceBatch::documents() const {
  return host_->has_documents ? documents_.view().prefix({B_, T_}) : TensorView{};
}

}  // namespace ringtrain
