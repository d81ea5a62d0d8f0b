// A shard knows the positions of its tokens in the whole sequence as a short list of affine segments. Kernels and the
// ring see only this list, not the layout's name. Pure values.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/error.h"
#include "framework/sequence/visibility.h"

namespace ringtrain {

/// Local tokens [offset, offset + count) of a shard have positions start, start + stride, ... ; count may be 0, stride
/// >= 1.
struct Segment {
  std::int64_t start = 0;
  std::int64_t stride = 1;
  std::int64_t count = 0;
  /// Returns the position of token i of the segment.
  std::int64_t position(std::int64_t i) const { return start + stride * i; }
  /// Returns the position of its last token.
  std::int64_t last() const { return position(count - 1); }
  friend bool operator==(const Segment&, const Segment&) = default;
};

using SegmentList = std::vector<Segment>;

/// The positions at which the documents of one sequence begin, ascending, from 0. Empty: the sequence is one document.
using DocumentStarts = std::vector<std::int64_t>;

/// Returns the number of tokens of all segments.
std::int64_t token_count(std::span<const Segment> segments);
/// Returns the position of local token i. Positions increase with i in every layout of this project.
std::int64_t position_of(std::span<const Segment> segments, std::int64_t i);

/// Returns the positions of local tokens [begin, end), without empty segments.
SegmentList segments_of_range(std::span<const Segment> segments, std::int64_t begin, std::int64_t end);

enum class Layout { contiguous, striped, zigzag };
inline constexpr std::array all_layouts{Layout::contiguous, Layout::striped, Layout::zigzag};
/// Returns a layout's name in configs.
const char* name_of(Layout layout);

/// Returns the positions of the tokens of `rank` of `ranks` in a sequence of `length` tokens. Shard sizes are
/// floor(S/N) or ceil(S/N), larger ones first; zigzag gives rank r the chunks r and 2N-1-r of 2N (Brandon et al.,
/// "Striped Attention", 2023, for striped; zigzag as in Llama 3, 2024, section 3.3.2). Empty segments are left out; a
/// rank may have none. Throws Error(usage) that names the caller's line unless 0 <= rank < ranks and length >= 0.
SegmentList shard_segments(Layout layout, std::int64_t length, int ranks, int rank,
                           const CallerLine& line = CallerLine::current());

/// Returns how many pairs of a query and a key of two shards (of one document) are visible, which is the cost of
/// attention between them. A closed form: its time is proportional to the number of pairs of segments.
std::int64_t visible_pairs(const AttentionMask& mask, std::span<const Segment> queries, std::span<const Segment> keys);

/// What the ring's schedule must know about one segment of one sequence: the ranges of its positions and its documents,
/// inclusive.
struct SegmentExtent {
  std::int64_t first_position = 0, last_position = 0;
  std::int32_t first_document = 0, last_document = 0;
};
/// All extents of a rank: [sequences of the micro-batch][segments].
using ShardExtents = std::vector<std::vector<SegmentExtent>>;

/// Returns whether any query of one shard may see any key of the other, in any sequence of the micro-batch.
bool may_see(const AttentionMask& mask, const ShardExtents& queries, const ShardExtents& keys);

}  // namespace ringtrain
