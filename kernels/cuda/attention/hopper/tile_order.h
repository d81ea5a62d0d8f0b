// The order in which blocks take tiles on Hopper: pure arithmetic, for host and device.
//
// Each block takes the next tile as soon as it is done with the previous one, the longest tiles of a head first. Heads
// are grouped in sections, so that the data of a section stays in the L2 cache. A section's last tiles are short, so
// they balance the remaining imbalance of the long ones, if there are enough of them: a last section of few tiles
// begins with its longest tile when most blocks are about to end.
//
// With few tiles per multiprocessor, there are not enough short ones. Then some of the tiles in the middle may come
// first (tile_schedule.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/sequence/visibility.h"

namespace ringtrain::cuda::hopper {

/// Consecutive sections of heads: the first `wide` have `heads` + 1 heads, the others `heads`. Within a section: tile
/// by tile, and for each tile head by head.
struct TileOrder {
  int tiles, all_heads, heads, wide;
  /// Of the first `rotated` positions, the first `late` come last: a rotation to the left.
  int rotated = 0, late = 0;
  struct Choice {
    int tile, head;
  };
  RINGTRAIN_HOST_DEVICE constexpr int count() const { return tiles * all_heads; }
  /// Returns the tile and the head of a work_index, 0 <= work_index < count().
  RINGTRAIN_HOST_DEVICE constexpr Choice operator[](int work_index) const {
    int slot = work_index;
    if (work_index < rotated) slot += work_index < rotated - late ? late : late - rotated;
    const int wide_tickets = wide * (heads + 1) * tiles;
    const bool in_wide = slot < wide_tickets;
    const int width = in_wide ? heads + 1 : heads, local_slot = in_wide ? slot : slot - wide_tickets;
    const int section = local_slot / (width * tiles), within = local_slot - section * width * tiles;
    const int first = section * width + (in_wide ? 0 : wide * (heads + 1));
    return {within / width, first + within % width};
  }
};

/// Returns an order of tiles * all_heads tiles. at_once: the minimum number of heads in a section, for instance as many
/// as the L2 cache holds. A section also gets at least 3 tiles per multiprocessor, if there are that many: with fewer,
/// a causal call left more than 3 % of the multiprocessors' time unused at its end in a simulation.
constexpr TileOrder tile_order(std::int64_t tiles, std::int64_t all_heads, std::int64_t at_once,
                               std::int64_t multiprocessors) {
  const std::int64_t even = (3 * multiprocessors + tiles - 1) / tiles;
  const std::int64_t least = std::clamp(std::max(at_once, even), std::int64_t{1}, all_heads);
  const std::int64_t sections = all_heads / least;
  return {static_cast<int>(tiles), static_cast<int>(all_heads), static_cast<int>(all_heads / sections),
          static_cast<int>(all_heads % sections)};
}

/// The kernels' tile size, in tokens.
inline constexpr int key_tile = 128;
constexpr int forward_query_tile(std::int64_t D) {
  return D == 64 ? 192 : 128;
}
constexpr int backward_query_tile(std::int64_t D) {
  return D == 64 ? 128 : 64;
}

}  // namespace ringtrain::cuda::hopper
