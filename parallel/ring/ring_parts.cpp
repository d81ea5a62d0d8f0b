#include "parallel/ring/ring_parts.h"

#include <algorithm>

#include "framework/error.h"

namespace ringtrain {

namespace {

constexpr std::int64_t largest_tile = 256;

/// Returns the smallest possible parts, starting with the first token or sequence: halves of segments, or sequences.
std::vector<RingPart> pieces(std::span<const Segment> segments, std::int64_t sequences, std::int64_t tile) {
  std::vector<RingPart> all;
  if (sequences != 1) {
    for (std::int64_t b = 0; b < sequences; ++b) all.push_back({b, 1, 0, token_count(segments)});
    return all;
  }
  std::int64_t first = 0;
  for (const Segment& segment : segments) {
    const std::int64_t cell = tile * segment.stride;
    const std::int64_t middle = segment.position(segment.count / 2) / cell * cell;  // a position between two tiles
    const std::int64_t lower = tokens_before({&segment, 1}, middle);
    for (const std::int64_t count : {lower, segment.count - lower}) {
      if (count > 0) all.push_back({0, 1, first, count});
      first += count;
    }
  }
  return all;
}

/// Returns two adjacent parts as one.
RingPart joined(const RingPart& earlier, const RingPart& later) {
  const bool of_one_sequence = earlier.first_sequence == later.first_sequence;
  return {earlier.first_sequence, earlier.sequences + (of_one_sequence ? 0 : later.sequences), earlier.first_token,
          earlier.tokens + (of_one_sequence ? later.tokens : 0)};
}

}  // namespace

std::vector<RingPart> ring_parts(std::span<const Segment> largest, std::int64_t sequences, std::int64_t min_tokens) {
  ensure(sequences >= 0 && min_tokens >= 1, "a block has sequences, and a part tokens");
  const std::vector<RingPart> all = pieces(largest, sequences, std::min(largest_tile, min_tokens));
  if (all.empty()) return {{0, sequences, 0, token_count(largest)}};
  const auto small = [&](const RingPart& part) { return part.sequences * part.tokens < min_tokens; };
  std::vector<RingPart> parts{all.back()};
  for (std::size_t i = all.size() - 1; i-- > 0;) {
    if (small(parts.back())) {
      parts.back() = joined(all[i], parts.back());
    } else {
      parts.push_back(all[i]);
    }
  }
  if (parts.size() > 1 && small(parts.back())) {  // the remainder at the beginning
    const RingPart remainder = parts.back();
    parts.pop_back();
    parts.back() = joined(remainder, parts.back());
  }
  return parts;
}

std::int64_t default_min_part(Device device, std::int64_t G) {
  const std::int64_t rows = device.is_cpu() ? 8192 : 16384;
  return std::max<std::int64_t>(256, rows / std::max<std::int64_t>(1, G));
}

std::int64_t tokens_before(std::span<const Segment> segments, std::int64_t position) {
  std::int64_t count = 0;
  for (const Segment& segment : segments) {
    if (segment.start >= position) continue;
    count += std::min(segment.count, (position - segment.start - 1) / segment.stride + 1);
  }
  return count;
}

RingPart part_seen(const AttentionMask& mask, std::span<const SegmentList> segments, int owner, int first_hop,
                   int last_hop) {
  const auto N = static_cast<int>(segments.size());
  const SegmentList& block = segments[static_cast<std::size_t>(owner)];
  std::int64_t begin = token_count(block), end = 0;
  for (int hop = first_hop; hop <= last_hop; ++hop) {
    for (const Segment& queries : segments[static_cast<std::size_t>((owner + hop) % N)]) {
      if (queries.count == 0) continue;
      const PositionRange seen = keys_seen_by(mask, {queries.start, queries.last()});
      const std::int64_t from = tokens_before(block, seen.first), to = tokens_before(block, seen.last + 1);
      if (from == to) continue;
      begin = std::min(begin, from);
      end = std::max(end, to);
    }
  }
  return {0, 1, std::min(begin, end), std::max<std::int64_t>(0, end - begin)};
}

RingPart common_part(const RingPart& a, const RingPart& b) {
  const std::int64_t end = std::min(a.first_token + a.tokens, b.first_token + b.tokens);
  const std::int64_t begin = std::min(end, std::max(a.first_token, b.first_token));
  return {a.first_sequence, a.sequences, begin, end - begin};
}

TensorView part_of(const TensorView& x, const RingPart& part) {
  if (x.empty() || (part.sequences == x.dim(0) && part.tokens == x.dim(1))) return x;
  if (part.tokens == x.dim(1)) return x.rows(part.first_sequence, part.first_sequence + part.sequences);
  ensure(x.dim(0) == 1, "a part is of tokens or of sequences");
  const TensorView tokens = x.reshape({x.dim(1), x.numel() / x.dim(1)});
  return tokens.rows(part.first_token, part.first_token + part.tokens).reshape(x.shape.with(1, part.tokens));
}

}  // namespace ringtrain
