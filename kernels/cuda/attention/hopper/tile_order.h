// The order in which blocks take tiles on Hopper: arithmetic alone, for host and device.
//
// Each block takes the next tile as soon as it is done with the last one, the longest tiles of a head first. Heads come
// in sections, so that what a section reads stays in the L2 cache. A section's last tiles are short, so they even out
// what its long ones left uneven, if there are enough of them: a last section of few tiles begins with its longest one
// when most blocks are about to end.
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/sequence/visibility.h"

namespace ringtrain::cuda::hopper {

/// Sections of heads, one after the other: the first `wide` have `heads` + 1 heads, the others `heads`. Inside a
/// section: tile by tile, and for each tile head by head.
struct TileOrder {
  int tiles, all_heads, heads, wide;
  struct Choice {
    int tile, head;
  };
  RINGTRAIN_HOST_DEVICE constexpr int count() const { return tiles * all_heads; }
  /// Returns the tile and the head of a work_index, 0 <= work_index < count().
  RINGTRAIN_HOST_DEVICE constexpr Choice operator[](int work_index) const {
    const int wide_tickets = wide * (heads + 1) * tiles;
    const bool in_wide = work_index < wide_tickets;
    const int width = in_wide ? heads + 1 : heads, rest = in_wide ? work_index : work_index - wide_tickets;
    const int section = rest / (width * tiles), within = rest - section * width * tiles;
    const int first = section * width + (in_wide ? 0 : wide * (heads + 1));
    return {within / width, first + within % width};
  }
};

/// Returns an order of tiles * all_heads tiles. at_once: how many heads a section should have at least, for instance as
/// many as the L2 cache holds. A section also gets at least 3 tiles a multiprocessor, if there are so many: with
/// fewer a causal call was simulated to leave more than 3 % of the multiprocessors' time unused at its end.
constexpr TileOrder tile_order(std::int64_t tiles, std::int64_t all_heads, std::int64_t at_once,
                               std::int64_t multiprocessors) {
  const std::int64_t even = (3 * multiprocessors + tiles - 1) / tiles;
  const std::int64_t least = std::clamp(std::max(at_once, even), std::int64_t{1}, all_heads);
  const std::int64_t sections = all_heads / least;
  return {static_cast<int>(tiles), static_cast<int>(all_heads), static_cast<int>(all_heads / sections),
          static_cast<int>(all_heads % sections)};
}

/// Tiles of the kernels, in tokens.
inline constexpr int key_tile = 128;
constexpr int forward_query_tile(std::int64_t D) {
  return D == 64 ? 192 : 128;
}
constexpr int backward_query_tile(std::int64_t D) {
  return D == 64 ? 128 : 64;
}

/// Returns how many heads of T tokens, each of `bytes_per_token`, the L2 cache holds at once, at least 1. cache_bytes
/// is less than the 50 MiB of an H100, since outputs pass through as well; FlashAttention-3 takes the same figures.
constexpr std::int64_t heads_in_cache(std::int64_t cache_bytes, std::int64_t T, std::int64_t bytes_per_token) {
  return std::max<std::int64_t>(1, cache_bytes / std::max<std::int64_t>(1, T * bytes_per_token));
}

/// Returns forward's order: query tiles of B * H heads, which share the keys and values of G heads a sequence.
constexpr TileOrder forward_order(std::int64_t B, std::int64_t H, std::int64_t G, std::int64_t D,
                                  std::int64_t query_tiles, std::int64_t Tk, std::int64_t multiprocessors) {
  constexpr std::int64_t cache_bytes = std::int64_t{32} << 20;
  return tile_order(query_tiles, B * H, heads_in_cache(cache_bytes, Tk, 4 * D) * (H / G), multiprocessors);
}

/// Returns backward's order: key tiles of B * G heads. A tile reads queries, dout and dq of all H / G heads of its own.
/// With turns (deterministic) a section has so many heads that few blocks work on the same one and wait for each other.
constexpr TileOrder backward_order(std::int64_t B, std::int64_t H, std::int64_t G, std::int64_t D,
                                   std::int64_t key_tiles, std::int64_t Tq, bool deterministic,
                                   std::int64_t multiprocessors) {
  constexpr std::int64_t cache_bytes = std::int64_t{40} << 20, apart = 32;
  const std::int64_t cached = heads_in_cache(cache_bytes, Tq, 8 * D * (H / G));
  return tile_order(key_tiles, B * G, deterministic ? std::max(cached, apart) : cached, multiprocessors);
}

}  // namespace ringtrain::cuda::hopper
