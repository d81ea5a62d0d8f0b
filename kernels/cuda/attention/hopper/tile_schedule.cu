#include "kernels/cuda/attention/hopper/tile_schedule.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "framework/cuda/context.h"
#include "kernels/cuda/attention/attention_mask.cuh"
#include "kernels/cuda/attention/hopper/choices.h"
#include "kernels/kept_free.h"

namespace ringtrain::cuda::hopper {

namespace {

/// Returns how many heads of T tokens, each of `bytes_per_token`, the L2 cache holds at once, at least 1. cache_bytes
/// is less than the 50 MiB of an H100, because outputs pass through it as well; FlashAttention-3 uses the same figures.
std::int64_t heads_in_cache(std::int64_t cache_bytes, std::int64_t T, std::int64_t bytes_per_token) {
  return std::max<std::int64_t>(1, cache_bytes / std::max<std::int64_t>(1, T * bytes_per_token));
}

/// Returns for each tile of `mine`, first to last, how many tiles of `other` it may see. For one document.
template <class SeenBy>
std::vector<int> steps_of_tiles(const TokenMap& mine, int size, const TokenMap& other, int other_size,
                                const SeenBy& seen_by) {
  std::vector<int> steps;
  const int tiles = tile_count(mine, size);
  steps.reserve(static_cast<std::size_t>(tiles));
  for (int number = 0; number < tiles; ++number) {
    const PositionRange positions = seen_by(tile_at(mine, size, number).positions());
    int seen = 0;
    for (int segment = 0; segment < other.segments; ++segment) {
      seen += tiles_seen(other, other_size, segment, positions, {0, other.tokens, true}).size();
    }
    steps.push_back(seen);
  }
  return steps;
}

/// Returns when the last tile is done if each multiprocessor takes the next one as soon as it is free.
int simulated_time(const std::vector<int>& times, int multiprocessors) {
  std::priority_queue<int, std::vector<int>, std::greater<>> ends(
      std::greater<>{}, std::vector<int>(static_cast<std::size_t>(multiprocessors), 0));
  int last = 0;
  for (const int time : times) {
    const int end = ends.top() + time;
    ends.pop();
    ends.push(end);
    last = std::max(last, end);
  }
  return last;
}

struct Rotation {
  int rotated = 0, late = 0;
};

/// Returns the rotation with which tiles that take `times` are done soonest. Tries rotations that end within the first
/// two tiles of each multiprocessor, in steps of a sixteenth of one tile each, until the multiprocessors are busy for
/// 99 % of the time.
Rotation find_rotation(const std::vector<int>& times, int multiprocessors) {
  const double work = std::accumulate(times.begin(), times.end(), 0.0);
  const int step = std::max(1, multiprocessors / 16);
  Rotation best;
  int soonest = simulated_time(times, multiprocessors);
  std::vector<int> rotated;
  for (int end = 2 * step; end <= 2 * multiprocessors; end += step) {
    for (int late = step; late < end; late += step) {
      if (0.99 * soonest * multiprocessors <= work) return best;
      rotated = times;
      std::rotate(rotated.begin(), rotated.begin() + late, rotated.begin() + end);
      const int time = simulated_time(rotated, multiprocessors);
      if (time < soonest) {
        soonest = time;
        best = {end, late};
      }
    }
  }
  return best;
}

/// Whether an order has too few tiles to balance the long ones, but enough for another order to help: from 2 tiles per
/// multiprocessor to 5, at which the longest first loses 3 % at most. All heads are one section then (tile_order), so
/// the content of the L2 cache stays the same. If tokens have documents, only the device knows how long tiles take.
bool may_rotate(const TileOrder& order, const TokenMap& queries, const TokenMap& keys, int multiprocessors) {
  const bool documents = queries.documents != nullptr && keys.documents != nullptr;
  return choices().rotated_tiles && !documents && order.count() >= 2 * multiprocessors &&
         order.count() < 5 * multiprocessors;
}

/// Returns `order`, rotated so that all multiprocessors end soonest. steps: the number of steps of each tile of the
/// order. A tile takes its steps, and one more for its beginning and end. Earlier shapes are remembered, for all ranks.
TileOrder with_rotation(TileOrder order, const std::vector<int>& steps, int multiprocessors) {
  if (std::all_of(steps.begin(), steps.end(), [&](int of_tile) { return of_tile == steps.front(); })) return order;
  std::vector<int> shape = steps;
  shape.push_back(order.all_heads);
  shape.push_back(multiprocessors);

  static std::mutex mutex;
  static std::map<std::vector<int>, Rotation> found;
  constexpr std::size_t remembered = 1000;
  const std::lock_guard lock(mutex);
  if (found.size() >= remembered) found.clear();
  const auto [at, is_new] = found.try_emplace(std::move(shape));
  if (is_new) {
    std::vector<int> times(static_cast<std::size_t>(order.count()));
    for (int i = 0; i < order.count(); ++i) times[i] = steps[order[i].tile] + 1;
    at->second = find_rotation(times, multiprocessors);
  }
  order.rotated = at->second.rotated;
  order.late = at->second.late;
  return order;
}

}  // namespace

int multiprocessors_for(const Stream& stream) {
  const int all = stream.cuda().multiprocessors();
  return std::max((all + 1) / 2, all - KeptFree::now());
}

TileOrder forward_order(const AttentionShape& shape, const AttentionTokens& queries, const AttentionTokens& keys,
                        int multiprocessors) {
  constexpr std::int64_t cache_bytes = std::int64_t{32} << 20;
  const TokenMap mine = token_map(queries), other = token_map(keys);
  const int tile = forward_query_tile(shape.D);
  const std::int64_t cached = heads_in_cache(cache_bytes, other.tokens, 4 * shape.D) * (shape.H / shape.G);
  const TileOrder order = tile_order(tile_count(mine, tile), shape.B * shape.H, cached, multiprocessors);
  if (!may_rotate(order, mine, other, multiprocessors)) return order;
  std::vector<int> steps = steps_of_tiles(
      mine, tile, other, key_tile, [&](const PositionRange& positions) { return keys_seen_by(shape.mask, positions); });
  std::reverse(steps.begin(), steps.end());
  return with_rotation(order, steps, multiprocessors);
}

TileOrder backward_order(const AttentionShape& shape, const AttentionTokens& queries, const AttentionTokens& keys,
                         int multiprocessors) {
  // A tile reads queries, dout and dq of all H / G heads of its own.
  constexpr std::int64_t cache_bytes = std::int64_t{40} << 20;
  const TokenMap mine = token_map(keys), other = token_map(queries);
  const std::int64_t group = shape.H / shape.G;
  const std::int64_t cached = heads_in_cache(cache_bytes, other.tokens, 8 * shape.D * group);
  const TileOrder order = tile_order(tile_count(mine, key_tile), shape.B * shape.G, cached, multiprocessors);
  if (shape.deterministic || !may_rotate(order, other, mine, multiprocessors)) return order;
  std::vector<int> steps =
      steps_of_tiles(mine, key_tile, other, backward_query_tile(shape.D),
                     [&](const PositionRange& positions) { return queries_that_see(shape.mask, positions); });
  for (int& of_tile : steps) of_tile *= static_cast<int>(group);
  return with_rotation(order, steps, multiprocessors);
}

}  // namespace ringtrain::cuda::hopper
