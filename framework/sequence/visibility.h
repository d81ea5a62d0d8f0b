// Which query may see which key: the only implementation of an attention mask, for the host and for CUDA kernels.
// Everything follows from the distances query - key that a mask allows, which form one interval. Callers check
// documents separately. Pure values.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define RINGTRAIN_HOST_DEVICE __host__ __device__
#else
#define RINGTRAIN_HOST_DEVICE
#endif

namespace ringtrain {

/// Whether a query may see a key: a function of only these (if the two document ids are equal).
struct AttentionMask {
  bool causal = true;
  std::int64_t window = 0;  // 0: none; else |query - key| < window
  friend bool operator==(const AttentionMask&, const AttentionMask&) = default;
};

/// Positions, or distances between positions, [first, last], both inclusive.
struct PositionRange {
  std::int64_t first, last;
};

/// More than the distance of any two positions, and safe to add to a position.
inline constexpr std::int64_t far_away = std::int64_t{1} << 61;

/// Returns the distances query - key at which a query sees a key.
RINGTRAIN_HOST_DEVICE constexpr PositionRange visible_distances(const AttentionMask& mask) {
  const std::int64_t reach = mask.window > 0 && mask.window < far_away ? mask.window - 1 : far_away;
  return {mask.causal ? 0 : -reach, reach};
}

RINGTRAIN_HOST_DEVICE constexpr bool visible(const AttentionMask& mask, std::int64_t query, std::int64_t key) {
  const PositionRange distances = visible_distances(mask);
  return query - key >= distances.first && query - key <= distances.last;
}

/// Returns the keys that any of the queries sees, and the queries that see any of the keys.
RINGTRAIN_HOST_DEVICE constexpr PositionRange keys_seen_by(const AttentionMask& mask, const PositionRange& queries) {
  const PositionRange distances = visible_distances(mask);
  return {queries.first - distances.last, queries.last - distances.first};
}
RINGTRAIN_HOST_DEVICE constexpr PositionRange queries_that_see(const AttentionMask& mask, const PositionRange& keys) {
  const PositionRange distances = visible_distances(mask);
  return {keys.first + distances.first, keys.last + distances.last};
}

/// Returns the keys that all of the queries see, and the queries that see all of the keys: none if last < first.
RINGTRAIN_HOST_DEVICE constexpr PositionRange keys_seen_by_all(const AttentionMask& mask,
                                                               const PositionRange& queries) {
  const PositionRange distances = visible_distances(mask);
  return {queries.last - distances.last, queries.first - distances.first};
}
RINGTRAIN_HOST_DEVICE constexpr PositionRange queries_that_see_all(const AttentionMask& mask,
                                                                   const PositionRange& keys) {
  const PositionRange distances = visible_distances(mask);
  return {keys.last + distances.first, keys.first + distances.last};
}

enum class TileVisibility { none, some, all };

/// Returns whether none, some, or all pairs of a query and a key are visible: exact if the intervals have no gaps.
RINGTRAIN_HOST_DEVICE constexpr TileVisibility tile_visibility(const AttentionMask& mask, const PositionRange& queries,
                                                               const PositionRange& keys) {
  const PositionRange distances = visible_distances(mask);
  const std::int64_t nearest = queries.first - keys.last, farthest = queries.last - keys.first;
  if (farthest < distances.first || nearest > distances.last) return TileVisibility::none;
  return nearest >= distances.first && farthest <= distances.last ? TileVisibility::all : TileVisibility::some;
}

}  // namespace ringtrain
