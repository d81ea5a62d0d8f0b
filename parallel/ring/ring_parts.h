// A block cut into parts, for backward. dk and dv of a block must have arrived from the left before a rank may add to
// them, so while all of them are in transit, nobody computes with them. With parts, both happen at the same time: while
// the gradients of one part are in transit, those of another are added to. The sums and their order do not change.
//
// All blocks of a micro-batch are cut at the same positions. So in a buffer that one block leaves while the next one
// arrives, no part of one overlaps with another part of the other. Pure values, which all ranks compute alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/device.h"
#include "framework/sequence/segments.h"
#include "framework/tensor.h"

namespace ringtrain {

/// Some tokens of the only sequence of a micro-batch, or some of its sequences, whole.
struct RingPart {
  std::int64_t first_sequence = 0, sequences = 1;
  std::int64_t first_token = 0, tokens = 0;
};

/// Returns the parts of blocks of `sequences` sequences with at most the tokens of `largest`, in the order in which
/// backward visits them: later tokens first, as attention visits key tiles. One sequence is cut where a segment begins
/// and in the middle of each segment, so that under a causal mask, a zigzag block of which a rank sees only the first
/// segment still has two parts. Each part has at least `min_tokens` tokens over its sequences, if there are that many.
/// Cuts within a segment are at multiples of 256 positions (times its stride; or of `min_tokens`, if that is less),
/// where they split no kernel's tile if the segment begins at one.
std::vector<RingPart> ring_parts(std::span<const Segment> largest, std::int64_t sequences, std::int64_t min_tokens);

/// Returns the tokens of the smallest part of a block with G key/value heads. A GPU of 132 processors computes with 128
/// keys of a head in each at a time: less would leave some idle. A CPU's cores are busy with far less.
std::int64_t default_min_part(Device device, std::int64_t G);

/// Returns how many of a shard's tokens have a position below this one.
std::int64_t tokens_before(std::span<const Segment> segments, std::int64_t position);
/// Returns the tokens of an owner's block, of one sequence, that some rank of a run of hops may see, and the tokens
/// between them. The run: the ranks owner + first_hop to owner + last_hop, modulo their number. segments: of every
/// rank.
RingPart part_seen(const AttentionMask& mask, std::span<const SegmentList> segments, int owner, int first_hop,
                   int last_hop);
/// Returns the sequences of a with the tokens common to both: two parts, or a part and a shard.
RingPart common_part(const RingPart& a, const RingPart& b);
/// Returns that part of x [B, T, ...], or an empty view of an empty one.
TensorView part_of(const TensorView& x, const RingPart& part);

}  // namespace ringtrain
