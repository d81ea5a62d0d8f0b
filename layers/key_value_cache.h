// The keys and values of generation, kept where their positions are: each ring rank holds those of its own part of the
// prompt, and of every N-th new token. A new token's query meets each rank's keys on that rank, and the partial states
// are combined by their log-sum-exp (kernels/decode_attention.h) in a tree over the ranks that is the same on all of
// them. So no rank holds a cache that grows with the whole sequence, and all ranks continue with the same bits.
#pragma once

#include <vector>

#include "framework/allocator.h"
#include "framework/sequence/segments.h"
#include "kernels/decode_attention.h"
#include "layers/model_spec.h"
#include "parallel/communicator.h"

namespace ringtrain {

class KeyValueCache {
 public:
  /// capacity: the largest number of tokens on this rank. The cache's tensors (Tag::activations) have 2 * t * G * D
  /// elements per layer, t being the capacity, or the layer's window if that is less. Its scratch (Tag::workspace): a
  /// partial state for each rank, one more, and one for each piece of the keys. ring: this rank's sequence group; null
  /// only when planning.
  KeyValueCache(Allocator& allocator, const ModelSpec& spec, DType dtype, std::int64_t capacity, int ring_size,
                Communicator* ring);

  /// Returns the largest number of tokens that a rank holds, given its `prompt` tokens of the prompt and the new ones.
  static std::int64_t capacity_of(std::int64_t prompt, std::int64_t new_tokens, int ring_size);

  /// Empties the cache. segments: the positions of this rank's prompt tokens.
  void begin(const SegmentList& segments);
  /// Keeps a layer's keys and values of the prompt: key_value is [2, 1, T, G, D], keys (rotated) first.
  void store(Stream& stream, int layer, const ConstTensorView& key_value);

  /// Continues with the token at a position after all others. All ranks pass the same position; the ranks take turns
  /// holding new tokens.
  void begin_token(std::int64_t position);
  /// Returns whether a token has begun since begin().
  bool decodes() const { return new_tokens_ > 0; }
  /// out[1, H * D] = the attention of the new token's query[1, H * D] over all tokens, including itself; key_value [2,
  /// 1, 1, G, D] is the new token's; sinks [H], or empty. Every rank passes the same query and gets the same bits.
  /// Collective over the ring.
  void attend(Stream& stream, int layer, const ConstTensorView& query, const ConstTensorView& key_value,
              const ConstTensorView& sinks, const TensorView& out);

 private:
  /// One layer's cache: local token i is in slot i modulo slots(), so a layer with a window keeps only the last ones.
  struct Layer {
    AttentionMask mask;
    Tensor tokens;  // [2, slots, G, D]
    std::int64_t slots() const { return tokens.shape()[1]; }
  };
  /// Returns a rank's partial state; state_of(ring size) is that of the keys that came around the ring.
  AttentionState state_of(int rank) const;
  /// Returns `count` of a layer's keys (half 0) or values (half 1) from a slot on: [count, G, D].
  TensorView slots(const Layer& layer, int half, std::int64_t first, std::int64_t count) const;
  /// Calls body(first, count) for local tokens [first, end) that a layer has, in one or two contiguous runs.
  template <class Body>
  static void for_runs(const Layer& layer, std::int64_t first, std::int64_t end, const Body& body);

  AttentionShape shape_;  // of every layer, except for the mask
  std::int64_t capacity_;
  int ring_size_;
  Communicator* ring_;
  std::vector<Layer> layers_;
  Tensor states_;  // [N + 1, H * (D + 2)]: o, m and l
  Tensor workspace_;
  SegmentList segments_;       // positions of this rank's tokens
  std::int64_t count_ = 0;     // number of those tokens
  std::int64_t position_ = 0;  // of the newest token
  std::int64_t new_tokens_ = 0;
  bool owned_ = false;  // whether this rank holds the newest token
};

}  // namespace ringtrain
