// A block cut into parts, for backward. dk and dv of a block must have come from the left before a rank may add to
// them, so while the whole of them travels, nobody computes on them. In parts they do both at once: while the gradients
// of one part are on their way, those of another are added to. What is added, and in which order, stays the same.
//
// All blocks of a micro-batch are cut at the same places, so that in a buffer which one block leaves while the next
// arrives, no part of the one stands where another part of the other does. Pure values, which all ranks find alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/device.h"
#include "framework/sequence/segments.h"
#include "framework/tensor.h"

namespace ringtrain {

/// Some tokens of the one sequence of a micro-batch, or some of its sequences, whole.
struct RingPart {
  std::int64_t first_sequence = 0, sequences = 1;
  std::int64_t first_token = 0, tokens = 0;
};

/// Returns the parts of blocks of `sequences` sequences of at most the tokens of `largest`, in the order in which
/// backward visits them: later tokens first, as attention visits key tiles. One sequence is cut where a segment begins
/// and in the middle of each segment, so that under a causal mask a zigzag block of which a rank sees the first segment
/// alone is still two parts to it. Each part has at least `min_tokens` tokens over its sequences, if there are so many;
/// cuts within a segment stand at multiples of 256 positions (times its stride; or of `min_tokens`, if that is less),
/// where no kernel's tile is cut in two.
std::vector<RingPart> ring_parts(std::span<const Segment> largest, std::int64_t sequences, std::int64_t min_tokens);

/// Returns the tokens of the smallest part of a block, of G key/value heads. A GPU of 132 processors computes on 128
/// keys of a head in each at a time: less would leave some idle. A CPU's cores are busy with far less.
std::int64_t default_min_part(Device device, std::int64_t G);

/// Returns how many of a shard's tokens have a position below this one.
std::int64_t tokens_before(std::span<const Segment> segments, std::int64_t position);
/// Returns the tokens of an owner's block, of one sequence, that some rank of a run of hops may see, and what lies
/// between them. The run: the ranks owner + first_hop to owner + last_hop, modulo their number. segments: of every
/// rank.
RingPart part_seen(const AttentionMask& mask, std::span<const SegmentList> segments, int owner, int first_hop,
                   int last_hop);
/// Returns the sequences of a with the tokens that both have: of two parts, or of a part and a shard.
RingPart common_part(const RingPart& a, const RingPart& b);
/// Returns that part of x [B, T, ...], or of nothing.
TensorView part_of(const TensorView& x, const RingPart& part);

}  // namespace ringtrain
