// The ring: brings every block of keys and values that this rank's queries may see, hop by hop, to a visitor, while the
// next block is already in transit (double buffers). In backward, dk and dv move with the block. Attention is the
// visitor; the ring does not know what it computes. No rank, layout, or mask appears above this file. A mistake in a
// call is an Error(usage) that names the caller's line.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "framework/allocator.h"
#include "framework/sequence/segments.h"
#include "framework/stream.h"
#include "parallel/communicator.h"
#include "parallel/ring/ring_batch.h"
#include "parallel/ring/ring_block.h"
#include "parallel/ring/ring_buffers.h"
#include "parallel/ring/ring_times.h"

namespace ringtrain {

struct RingTensors;

/// The pass's layer, and which of the micro-batch's schedules it follows.
struct RingCall {
  /// A layer by itself represents its first schedule.
  RingCall(int of_layer, int of_schedule = 0) : layer(of_layer), schedule(of_schedule) {}  // NOLINT(*-explicit-*)
  int layer, schedule;
};

class Ring {
 public:
  /// Makes buffers under Tag::ring (see RingBuffers) and splits two communicators off `sequence_group` (keys and
  /// values; gradients), so it is collective unless that is null, which is only for planning. A ring of one allocates
  /// nothing.
  Ring(Allocator& allocator, Communicator* sequence_group, int ring_size, const RingCapacity& capacity,
       const CallerLine& line = CallerLine::current());

  /// Sets the schedules of a micro-batch, one for each mask, from the tokens of every ring rank. Pure: all ranks pass
  /// the same values; no communication. documents: of each sequence, to count pairs (document ids may be on a GPU); or
  /// empty.
  void begin(std::span<const AttentionMask> masks, std::span<const ShardExtents> extents,
             std::span<const SegmentList> segments, std::int64_t sequences,
             std::span<const DocumentStarts> documents = {}, const CallerLine& line = CallerLine::current());
  /// The same for one mask.
  void begin(const AttentionMask& mask, std::span<const ShardExtents> extents, std::span<const SegmentList> segments,
             std::int64_t sequences, std::span<const DocumentStarts> documents = {},
             const CallerLine& line = CallerLine::current()) {
    begin(std::span(&mask, 1), extents, segments, sequences, documents, line);
  }

  /// Calls visitor for the rank's own block, then for each block that its queries may see, in the order of hops. kv [2,
  /// B, T, G, D]: own keys and values, unchanged until return. documents: own ids, int32 [B, T], or empty.
  void forward(Stream& stream, const RingCall& call, const TensorView& kv, const TensorView& documents,
               const RingVisitor& visitor, const CallerLine& line = CallerLine::current());
  /// The same, with gradients: dkv [2, B, T, G, D], of the accumulator, contains this rank's complete dk and dv at
  /// return; its earlier content is ignored. Blocks come in parts, so that gradients move while others are added to. If
  /// given, `overlap` runs while the last gradients return; it must not need dkv.
  void backward(Stream& stream, const RingCall& call, const TensorView& kv, const TensorView& documents,
                const TensorView& dkv, const RingVisitor& visitor, const std::function<void()>& overlap = {},
                const CallerLine& line = CallerLine::current());

  /// Returns the plan of one of the current micro-batch's schedules.
  const RingPlan& plan(int schedule = 0) const { return batches_[schedule].plan(); }
  /// Returns the work and the waits (exposed communication) of the passes since the last call, and resets them. On a
  /// GPU, these are times of its stream, whose end this call waits for: call it where a value has just been read.
  RingLoads take_loads() { return times_.take(); }

 private:
  void pass(Stream& stream, const RingCall& call, const RingTensors& tensors, const RingVisitor& visitor,
            const std::function<void()>& overlap, const CallerLine& line);
  /// Refuses a micro-batch that does not fit buffers of this many tokens; a ring of one has no buffers.
  void check_capacity(std::int64_t tokens, const char* field, const CallerLine& line) const;
  /// Refuses a pass whose schedule or tensors do not fit the micro-batch.
  void check_pass(const RingCall& call, const RingTensors& tensors, const RingVisitor& visitor,
                  const CallerLine& line) const;

  const int size_, rank_;
  const Device device_;
  const std::int64_t min_part_;
  RingBuffers buffers_;
  std::vector<RingBatch> batches_;  // by schedule; empty before begin()
  RingTimes times_;
  // Declared after the buffers, so that they are destroyed first: they withdraw exchanges that an exception left
  // pending.
  std::unique_ptr<Communicator> key_ranks_, gradient_ranks_;
};

}  // namespace ringtrain
