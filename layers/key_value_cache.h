// The keys and values that generation has met, where their positions are: each ring rank holds those of its own part of
// the prompt, and of every N-th new token. A new token's query meets each rank's keys there, and the partial states are
// combined by their log-sum-exp (kernels/decode_attention.h) in a tree over the ranks that is the same on all of them.
// So no rank holds a cache that grows with the whole sequence, and all ranks go on with the same bits.
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
  /// capacity: the most tokens of this rank. The cache's tensors (Tag::activations): 2 * t * G * D elements a layer, t
  /// the capacity, or the layer's window if that is less; its scratch (Tag::workspace): a partial state for each rank,
  /// one more, and one for each piece of the keys. ring: this rank's sequence group; null only when planning.
  KeyValueCache(Allocator& allocator, const ModelSpec& spec, DType dtype, std::int64_t capacity, int ring_size,
                Communicator* ring);

  /// Returns how many tokens a rank holds at most of a prompt, of which it has `prompt` tokens, and so many new ones.
  static std::int64_t capacity_of(std::int64_t prompt, std::int64_t new_tokens, int ring_size);

  /// Forgets all. segments: where the prompt's tokens of this rank stand.
  void begin(const SegmentList& segments);
  /// Keeps a layer's keys and values of those: key_value is [2, 1, T, G, D], keys (rotated) first.
  void store(Stream& stream, int layer, const ConstTensorView& key_value);

  /// Goes on with the token at a position after all others. All ranks say the same, and the ranks take new tokens in
  /// turn.
  void begin_token(std::int64_t position);
  /// Returns whether a token has begun since begin().
  bool decodes() const { return new_tokens_ > 0; }
  /// out[1, H * D] = the attention of the new token's query[1, H * D] over all tokens, its own included; key_value
  /// [2, 1, 1, G, D] is its own; sinks [H], or empty. Every rank has the same query, and gets the same bits. Collective
  /// over the ring.
  void attend(Stream& stream, int layer, const ConstTensorView& query, const ConstTensorView& key_value,
              const ConstTensorView& sinks, const TensorView& out);

 private:
  /// A layer's own: local token i is at place i modulo places, so a layer with a window keeps the last ones alone.
  struct Layer {
    AttentionMask mask;
    Tensor tokens;  // [2, places, G, D]
    std::int64_t slots() const { return tokens.shape()[1]; }
  };
  /// Returns a rank's partial state; the ring's size: that of keys that came round.
  AttentionState state_of(int rank) const;
  /// Returns `count` of a layer's keys (half 0) or values (half 1) from a place on: [count, G, D].
  TensorView slots(const Layer& layer, int half, std::int64_t first, std::int64_t count) const;
  /// Calls body(first, count) for local tokens [first, end), which a layer has, in one or two runs that lie together.
  template <class Body>
  static void for_runs(const Layer& layer, std::int64_t first, std::int64_t end, const Body& body);

  AttentionShape shape_;  // of every layer, but for the mask
  std::int64_t capacity_;
  int ring_size_;
  Communicator* ring_;
  std::vector<Layer> layers_;
  Tensor states_;  // [N + 1, H * (D + 2)]: o, m and l
  Tensor workspace_;
  SegmentList segments_;       // where this rank's tokens stand
  std::int64_t count_ = 0;     // of them
  std::int64_t position_ = 0;  // of the newest token
  std::int64_t new_tokens_ = 0;
  bool owned_ = false;  // whether this rank holds the newest
};

}  // namespace ringtrain
