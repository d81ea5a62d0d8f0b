// One micro-batch of one rank. Tokens, labels, positions, documents, and loss weights are one struct, and are cut and
// permuted together. Labels are shifted on the whole sequence before it is cut.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/allocator.h"
#include "framework/sequence/segments.h"
#include "framework/tensor.h"

namespace ringtrain {

/// The loader fills it. Its tensors are on the host (a device model copies them on its own stream). The capacity is
/// fixed at construction: B <= max_sequences and B * T <= max_sequences * max_tokens. Views have the current shape.
class Batch {
 public:
  /// dtype: the model's; the weights have its accumulator. The allocator must outlive this object.
  Batch(Allocator& allocator, std::int64_t max_sequences, std::int64_t max_tokens, DType dtype);

  std::int64_t B = 0;  // sequences
  std::int64_t T = 0;  // tokens of each on this rank; may be 0
  SegmentList segments;
  bool has_documents = false;     // false: every token is in one document (packing concat, evaluation)
  double weight_sum = 0;          // sum of weights over labels >= 0, of this rank
  std::int64_t target_count = 0;  // labels >= 0 with weight != 0, of this rank

  // What every ring rank has of these sequences, by ring rank, for the ring's schedule and messages.
  std::vector<ShardExtents> extents;            // [N]
  std::vector<SegmentList> ring_segments;       // [N]
  std::vector<DocumentStarts> document_starts;  // [B] of the whole sequences; empty without documents

  /// Returns the token ids [B, T].
  TensorView tokens() const { return tokens_.view().prefix({B, T}); }  // int32
  /// Returns the tokens to predict [B, T].
  TensorView labels() const { return labels_.view().prefix({B, T}); }  // int32; -1: no target
  /// Returns the positions [B, T].
  TensorView positions() const { return positions_.view().prefix({B, T}); }  // int32; within the document
  /// Returns the document ids [B, T], which do not decrease along a sequence.
  TensorView documents() const { return documents_.view().prefix({B, T}); }  // int32; 0 for the first of the window
  /// Returns the weights of the tokens' losses [B, T].
  TensorView weights() const { return weights_.view().prefix({B, T}); }  // the accumulator of the model's dtype

 private:
  Tensor tokens_, labels_, positions_, documents_, weights_;
};

}  // namespace ringtrain
