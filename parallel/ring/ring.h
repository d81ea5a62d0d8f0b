// The ring: brings every block of keys and values that this rank's queries may see, hop by hop, to a visitor, while the
// next block is already on its way (double buffers). In backward dk and dv ride along. Attention is the visitor; the
// ring does not know what it computes. No rank, layout or mask appears above this file.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "framework/allocator.h"
#include "framework/sequence/segments.h"
#include "framework/stream.h"
#include "kernels/attention.h"
#include "parallel/communicator.h"
#include "parallel/ring/ring_load.h"
#include "parallel/ring/ring_schedule.h"

namespace ringtrain {

/// Keys and values of one shard, as the ring sends them: kv is [2, B, T, G, D], keys first. In backward it may be a
/// part of them (parallel/ring/ring_parts.h): some tokens, or the `sequences` sequences from first_sequence on; of the
/// queries, those of the same sequences meet it.
struct RingBlock {
  int owner = 0;
  int hop = 0;
  bool first = false, last = false;  // of the blocks, or parts, that this rank meets in the pass
  std::int64_t first_sequence = 0, sequences = 0;
  std::int64_t pairs = 0;       // of a query of this rank and a key of this block that see each other
  ConstTensorView k, v;         // [sequences, tokens, G, D]
  TensorView dk = {}, dv = {};  // backward: the running sums that the visitor adds to, in place
  AttentionTokens tokens;

  /// Return what x [B, ...] has of its sequences, or nothing of nothing.
  TensorView sequences_of(const TensorView& x) const {
    return x.empty() ? x : x.rows(first_sequence, first_sequence + sequences);
  }
};

/// The largest micro-batch of any use, as B * T of the largest shard of any rank: training has several short sequences,
/// evaluation may have one long one.
struct RingCapacity {
  std::int64_t tokens = 0;           // of any pass
  std::int64_t gradient_tokens = 0;  // of a backward pass
  std::int64_t G = 0, D = 0;
  DType dtype = DType::float32;  // of keys and values; their gradients have its accumulator
  bool backward = true;          // else no gradient buffers
  bool documents = true;         // else no buffers for document ids
  std::int64_t min_part = 0;     // tokens of a part of a block in backward; 0: what keeps the device busy
};

class Ring {
 public:
  using Visitor = std::function<void(const RingBlock&)>;

  /// Makes buffers under Tag::ring (their bytes: ring_bytes) and splits two communicators off `sequence_group` (keys
  /// and values; gradients), so it is collective unless that is null: then planning only. A ring of one allocates
  /// nothing.
  Ring(Allocator& allocator, Communicator* sequence_group, int ring_size, const RingCapacity& capacity);
  ~Ring();

  /// Sets the schedule of a micro-batch: what every ring rank holds. Pure: all ranks pass the same values; no
  /// communication. documents: of each sequence, to count pairs by (document ids may lie on a GPU); or none.
  void begin(const AttentionMask& mask, std::span<const ShardExtents> extents, std::span<const SegmentList> segments,
             std::int64_t sequences, std::span<const DocumentStarts> documents = {});

  /// Calls visitor for the rank's own block, then for each block that its queries may see, in the order of hops.
  /// kv [2, B, T, G, D]: own keys and values, unchanged until return. documents: own ids, int32 [B, T], or empty.
  void forward(Stream& stream, int layer, const TensorView& kv, const TensorView& documents, const Visitor& visitor);
  /// The same, with gradients: dkv [2, B, T, G, D], of the accumulator, is zeroed first and holds this rank's complete
  /// dk and dv at return. Blocks come in parts, so that gradients move while others are added to; and while the last
  /// ones return, what `overlap` computes, which must not need dkv, if given.
  void backward(Stream& stream, int layer, const TensorView& kv, const TensorView& documents, const TensorView& dkv,
                const Visitor& visitor, const std::function<void()>& overlap = {});

  /// Return the plan of the current micro-batch.
  const RingPlan& plan() const { return plan_; }
  /// Return the bytes of the ring's buffers: the stated formula, see docs/architecture.md.
  static std::size_t ring_bytes(const RingCapacity& capacity, int ring_size);
  /// Return what the passes since the last call did and waited for (the exposed communication), and reset it. On a GPU
  /// these are times of its stream, for whose end this waits: call it where a value has just been read.
  RingLoad take_load();

 private:
  struct State;
  std::unique_ptr<State> state_;
  RingPlan plan_;
};

}  // namespace ringtrain
