// What a micro-batch is to one rank of the ring: which tokens every rank holds, the parts that blocks are cut into, and
// what this rank does at each hop. Pure: all ranks find it alike. No communication.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/sequence/segments.h"
#include "parallel/ring/ring_parts.h"
#include "parallel/ring/ring_schedule.h"

namespace ringtrain {

class RingBatch {
 public:
  /// What a rank does at one hop; null: nothing of the kind.
  struct Round {
    const RingStep* step = nullptr;
    const RingDelivery* delivery = nullptr;
    const RingReturn* returned = nullptr;
  };

  /// min_part: tokens of a part of a block, at least.
  RingBatch(int ring_size, int rank, std::int64_t min_part) : size_(ring_size), rank_(rank), min_part_(min_part) {}

  /// Sets the micro-batch, as Ring::begin.
  void begin(const AttentionMask& mask, std::span<const ShardExtents> extents, std::span<const SegmentList> segments,
             std::int64_t sequences, std::span<const DocumentStarts> documents);

  const RingPlan& plan() const { return plan_; }
  int size() const { return size_; }
  int rank() const { return rank_; }
  std::int64_t sequences() const { return sequences_; }
  /// Returns T of the largest shard.
  std::int64_t longest() const;
  std::int64_t tokens_of(int owner) const { return tokens_[owner]; }
  const SegmentList& segments_of(int owner) const { return segments_[owner]; }
  /// hop: from 0 to the ring's size, where only gradients return.
  const Round& round(int hop) const { return rounds_[hop]; }
  /// Returns whether this rank meets its first, or its last, block at the hop.
  bool is_first(int hop) const { return hop == plan_.steps.front().hop; }
  bool is_last(int hop) const { return hop == plan_.steps.back().hop; }

  /// Returns the parts that every block is cut into; tokens are those of the largest shard.
  const std::vector<RingPart>& parts() const { return parts_; }
  RingPart part_of_block(int owner, std::size_t part) const { return part_of_shard(parts_[part], tokens_of(owner)); }
  SegmentList segments_of_part(int owner, std::size_t part) const;
  /// Returns the visible pairs of each part of the block that is met at a step. Counted once for all layers.
  std::span<const std::int64_t> pairs_of(const RingStep& step);

 private:
  int size_, rank_;
  std::int64_t min_part_;
  std::int64_t sequences_ = 0;
  AttentionMask mask_;
  std::vector<SegmentList> segments_;             // by rank
  std::vector<DocumentStarts> documents_;         // by sequence; none: one document each
  std::vector<std::int64_t> tokens_;              // by rank
  std::vector<RingPart> parts_;                   // of every block
  std::vector<std::vector<std::int64_t>> pairs_;  // by hop and part; none before the block is met
  RingPlan plan_;
  std::vector<Round> rounds_;  // by hop; one more than there are hops
};

}  // namespace ringtrain
