// Simulates how much of the multiprocessors' time the order of tiles leaves unused: a block on each takes the next
// ticket when it is done. A tile's time is its number of steps, and one more for its beginning and end.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/attention/hopper/tile_schedule.h"

namespace ringtrain::cuda::hopper {
namespace {

constexpr int multiprocessors = 132;
constexpr std::int64_t query_heads = 16;

/// First and last positions of a side's tiles.
struct Extent {
  std::int64_t first, last;
};
std::vector<Extent> extents(const std::vector<Segment>& segments, std::int64_t tile) {
  std::vector<Extent> result;
  for (const Segment& segment : segments) {
    for (std::int64_t from = 0; from < segment.count; from += tile) {
      const std::int64_t to = std::min(from + tile, segment.count) - 1;
      result.push_back({segment.start + segment.stride * from, segment.start + segment.stride * to});
    }
  }
  return result;
}

/// Whether some query of a tile may see some key of another: some distance between nearest and farthest is allowed.
bool meet(const AttentionMask& mask, const Extent& queries, const Extent& keys) {
  const std::int64_t nearest = queries.first - keys.last, farthest = queries.last - keys.first;
  const bool near_enough = mask.window == 0 || (nearest < mask.window && farthest > -mask.window);
  return near_enough && (!mask.causal || farthest >= 0);
}

enum class Pass { forward, backward };

/// A call: S queries and the same number of keys, one sequence, by default the same tokens.
struct Call {
  Pass pass;
  std::int64_t S, G, D;
  AttentionMask mask;
  bool deterministic = false;
  std::vector<Segment> queries = {{0, 1, S}}, keys = queries;

  AttentionShape shape() const { return {1, query_heads, G, D, 1.0, mask, deterministic}; }
  TileOrder order(int processors = multiprocessors) const {
    return pass == Pass::forward ? forward_order(shape(), {queries, {}}, {keys, {}}, processors)
                                 : backward_order(shape(), {queries, {}}, {keys, {}}, processors);
  }
  /// Returns the time of each of the order's tiles; forward counts them from the last one downwards.
  std::vector<double> times() const {
    const auto of_queries = extents(queries, pass == Pass::forward ? forward_query_tile(D) : backward_query_tile(D));
    const auto of_keys = extents(keys, key_tile);
    std::vector<double> result;
    if (pass == Pass::forward) {
      for (auto mine = of_queries.rbegin(); mine != of_queries.rend(); ++mine) {
        const auto seen = std::count_if(of_keys.begin(), of_keys.end(),
                                        [&](const Extent& other) { return meet(mask, *mine, other); });
        result.push_back(static_cast<double>(seen + 1));
      }
    } else {
      const std::int64_t group = query_heads / G;
      for (const Extent& mine : of_keys) {
        const auto seen = std::count_if(of_queries.begin(), of_queries.end(),
                                        [&](const Extent& other) { return meet(mask, other, mine); });
        result.push_back(static_cast<double>(seen * group + 1));
      }
    }
    return result;
  }
  std::string name() const {
    return std::string(pass == Pass::forward ? "forward" : "backward") + ", S " + std::to_string(S) + ", G " +
           std::to_string(G) + ", D " + std::to_string(D) + (mask.causal ? ", causal" : ", full") + ", window " +
           std::to_string(mask.window);
  }
};

double simulated_time(const std::vector<double>& tickets, int processors = multiprocessors) {
  std::priority_queue<double, std::vector<double>, std::greater<>> ends(std::greater<>{},
                                                                        std::vector<double>(processors, 0.0));
  double last = 0;
  for (const double ticket : tickets) {
    const double end = ends.top() + ticket;
    ends.pop();
    ends.push(end);
    last = std::max(last, end);
  }
  return last;
}
double simulated_time(const TileOrder& order, const std::vector<double>& times, int processors = multiprocessors) {
  std::vector<double> tickets;
  for (int ticket = 0; ticket < order.count(); ++ticket) tickets.push_back(times[order[ticket].tile]);
  return simulated_time(tickets, processors);
}

/// No schedule is shorter than this: of the k * 132 + 1 longest tiles, some block has k + 1, at best the shortest of
/// them.
double ideal_time(std::vector<double> tickets) {
  std::sort(tickets.rbegin(), tickets.rend());
  double total = 0;
  for (const double ticket : tickets) total += ticket;
  double bound = std::max(total / multiprocessors, tickets.front());
  for (std::size_t k = 1; k * multiprocessors < tickets.size(); ++k) {
    double sum = 0;
    for (std::size_t i = 0; i <= k; ++i) sum += tickets[k * multiprocessors - i];
    bound = std::max(bound, sum);
  }
  return bound;
}

double efficiency(const Call& call) {
  const TileOrder order = call.order();
  const std::vector<double> times = call.times();
  std::vector<double> tickets;
  for (const double time : times) tickets.insert(tickets.end(), static_cast<std::size_t>(order.all_heads), time);
  return ideal_time(tickets) / simulated_time(order, times);
}

TEST(HopperTileOrder, KeepsAllMultiprocessorsBusyToTheEnd) {
  for (std::int64_t S = 2048; S <= 65536; S += 1024) {
    for (const std::int64_t G : {8, 16}) {
      for (const std::int64_t D : {64, 128}) {
        for (const bool causal : {false, true}) {
          for (const Pass pass : {Pass::forward, Pass::backward}) {
            const Call call{pass, S, G, D, {causal, 0}};
            const int count = call.order().count();
            if (count < 2 * multiprocessors) continue;  // no order helps
            EXPECT_GE(efficiency(call), 0.97) << call.name() << ", " << count << " tiles";
          }
        }
      }
    }
  }
}

void expect_every_tile_once(const TileOrder& order) {
  std::set<std::pair<int, int>> seen;
  for (int ticket = 0; ticket < order.count(); ++ticket) {
    const auto [tile, head] = order[ticket];
    ASSERT_TRUE(tile >= 0 && tile < order.tiles && head >= 0 && head < order.all_heads);
    EXPECT_TRUE(seen.emplace(tile, head).second) << "tile " << tile << " of head " << head << " twice";
  }
  EXPECT_EQ(std::ssize(seen), order.count());
}

TEST(HopperTileOrder, GivesEveryTileOfEveryHeadOnce) {
  for (const int all_heads : {1, 2, 3, 7, 16, 33}) {
    for (const int tiles : {1, 5, 64}) {
      for (const int at_once : {1, 2, 5, 100}) expect_every_tile_once(tile_order(tiles, all_heads, at_once, 2));
    }
  }
}

/// Shards of zigzag and striped layouts, a shard that the queries of another one see completely, windows, and odd
/// lengths.
std::vector<Call> calls_of_all_kinds() {
  std::vector<Call> calls;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    for (const std::int64_t S : {2304, 3072, 4096, 5000, 6144, 10240}) {
      for (const std::int64_t G : {2, 8, 16}) {
        for (const std::int64_t D : {64, 128}) {
          for (const std::int64_t window : {0, 700, 4000}) {
            const AttentionMask mask{true, window};
            const std::int64_t half = S / 2;
            const std::vector<Segment> zigzag = {{half, 1, half}, {6 * half, 1, half}};
            const std::vector<Segment> of_another = {{0, 1, half}, {7 * half, 1, half}};
            calls.push_back({pass, S, G, D, mask});
            calls.push_back({pass, S, G, D, mask, false, zigzag, zigzag});
            calls.push_back({pass, S, G, D, mask, false, zigzag, of_another});
            calls.push_back({pass, S, G, D, mask, false, {{1, 4, S}}, {{2, 4, S}}});
            calls.push_back({pass, S, G, D, mask, false, {{S, 1, S}}, {{0, 1, S}}});
          }
        }
      }
    }
  }
  return calls;
}

TEST(HopperTileOrder, IsNeverWorseThanTheLongestFirst) {
  int rotated = 0;
  for (const Call& call : calls_of_all_kinds()) {
    for (const int processors : {8, 114, multiprocessors}) {
      const TileOrder order = call.order(processors);
      TileOrder plain = order;
      plain.rotated = plain.late = 0;
      expect_every_tile_once(order);
      EXPECT_LE(simulated_time(order, call.times(), processors), simulated_time(plain, call.times(), processors))
          << call.name();
      rotated += order.rotated > 0;
    }
  }
  EXPECT_GT(rotated, 100);
}

/// Blocks that add to the same dq wait for those of the head's earlier keys, which must have started before them.
TEST(HopperTileOrder, LetsNoBlockWaitForALaterOne) {
  for (Call call : calls_of_all_kinds()) {
    if (call.pass == Pass::forward) continue;
    call.deterministic = true;
    for (const int processors : {8, multiprocessors}) {
      const TileOrder order = call.order(processors);
      std::map<int, int> next;  // tile of each head
      for (int ticket = 0; ticket < order.count(); ++ticket) {
        const auto [tile, head] = order[ticket];
        ASSERT_EQ(tile, next[head]++) << call.name() << ", head " << head;
      }
    }
  }
}

/// Only the device knows how long tiles with documents take.
TEST(HopperTileOrder, TakesDocumentsAsTheyCome) {
  Call call{Pass::forward, 3072, 16, 128, {true, 0}};
  std::vector<std::int32_t> documents(3072, 0);
  const TensorView view = host_view(documents.data(), {1, 3072});
  const AttentionTokens tokens{call.queries, view};
  EXPECT_GT(call.order().rotated, 0);
  EXPECT_EQ(forward_order(call.shape(), tokens, tokens, multiprocessors).rotated, 0);
  call.pass = Pass::backward;
  EXPECT_GT(call.order().rotated, 0);
  EXPECT_EQ(backward_order(call.shape(), tokens, tokens, multiprocessors).rotated, 0);
}

TEST(HopperTileOrder, HasNoSectionSmallerThanWhatTheCacheHolds) {
  const TileOrder order = tile_order(512, 8, 3, multiprocessors);  // 8 heads, at least 3 at once: 4 and 4
  EXPECT_EQ(order[0].head, 0);
  EXPECT_EQ(order[3].head, 3);
  EXPECT_EQ(order[4].tile, 1);
  EXPECT_EQ(order[4 * 512].head, 4);
}

}  // namespace
}  // namespace ringtrain::cuda::hopper
