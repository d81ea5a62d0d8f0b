// One rank's view of a micro-batch: which tokens every rank has, the parts into which blocks are cut, and the work of
// this rank at each hop. Pure: all ranks compute the same. No communication.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/sequence/segments.h"
#include "parallel/ring/ring_parts.h"
#include "parallel/ring/ring_schedule.h"

namespace ringtrain {

class RingBatch {
 public:
  /// Which tokens of a block are sent for a rank's work at one hop. With one sequence under a window, these are the
  /// tokens that some rank of the run of hops may see, and those between them; otherwise the whole block.
  struct Traveling {
    RingPart of_step, of_delivery, of_return;  // hop 0: of_step is the whole block, which is not sent
  };

  /// min_part: the minimum number of tokens of a part of a block.
  RingBatch(int ring_size, int rank, std::int64_t min_part) : size_(ring_size), rank_(rank), min_part_(min_part) {}

  /// Sets the micro-batch; see Ring::begin.
  void begin(const AttentionMask& mask, std::span<const ShardExtents> extents, std::span<const SegmentList> segments,
             std::int64_t sequences, std::span<const DocumentStarts> documents);

  const RingPlan& plan() const { return plan_; }
  int size() const { return size_; }
  std::int64_t sequences() const { return sequences_; }
  /// Returns T of the largest shard.
  std::int64_t longest() const { return std::ranges::max(tokens_); }
  std::int64_t tokens_of(int owner) const { return tokens_[owner]; }
  const Traveling& traveling(int hop) const { return traveling_[hop]; }
  /// Returns the hop at which this rank meets its last block.
  int last_hop() const { return last_hop_; }

  /// Returns the parts into which every block is cut; their tokens are those of the largest shard.
  const std::vector<RingPart>& parts() const { return parts_; }
  /// Returns the tokens of a part among the sent tokens of a block.
  RingPart part_of_traveling(const RingPart& traveling, std::size_t part) const {
    return common_part(parts_[part], traveling);
  }
  SegmentList segments_of_part(int owner, const RingPart& part) const;
  RingPart whole(int owner) const { return {0, sequences_, 0, tokens_of(owner)}; }
  /// Returns the visible pairs of each part of the block of a step. Counted once for all layers.
  std::span<const std::int64_t> pairs_of(const RingStep& step);

 private:
  /// Returns the tokens of an owner's block that are sent along the run of hops to which a rank belongs.
  RingPart traveling_to(std::span<const char> needed, int owner, int member) const;

  int size_, rank_;
  std::int64_t min_part_;
  std::int64_t sequences_ = 0;
  AttentionMask mask_;
  std::vector<SegmentList> segments_;             // by rank
  std::vector<DocumentStarts> documents_;         // by sequence; empty: one document each
  std::vector<std::int64_t> tokens_;              // by rank
  std::vector<RingPart> parts_;                   // of every block
  std::vector<std::vector<std::int64_t>> pairs_;  // by hop and part; empty before the block is met
  RingPlan plan_;
  std::vector<Traveling> traveling_;  // by hop
  int last_hop_ = 0;
};

}  // namespace ringtrain
