// How much of the multiprocessors' time the order of tiles leaves unused, simulated: a block on each of 132 takes the
// next ticket when it is done. A tile's time is its number of steps, and one more for its beginning and end.
#include "kernels/cuda/attention/hopper/tile_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <string>
#include <vector>

namespace ringtrain::cuda::hopper {
namespace {

constexpr int multiprocessors = 132;

std::int64_t tiles_of(std::int64_t tokens, std::int64_t tile) {
  return (tokens + tile - 1) / tile;
}

/// Steps of every ticket's tile, for one sequence of S tokens.
std::vector<double> steps(const TileOrder& order, const std::function<double(int)>& steps_of_tile) {
  std::vector<double> result;
  for (int ticket = 0; ticket < order.count(); ++ticket) result.push_back(steps_of_tile(order[ticket].tile) + 1);
  return result;
}

double simulated_time(const std::vector<double>& tickets) {
  std::priority_queue<double, std::vector<double>, std::greater<>> ends(std::greater<>{},
                                                                        std::vector<double>(multiprocessors, 0.0));
  double last = 0;
  for (const double ticket : tickets) {
    const double end = ends.top() + ticket;
    ends.pop();
    ends.push(end);
    last = std::max(last, end);
  }
  return last;
}

/// No schedule is shorter: of the k * 132 + 1 longest tiles some block has k + 1, at best the shortest of them.
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

double forward_efficiency(std::int64_t S, std::int64_t H, std::int64_t G, std::int64_t D, bool causal) {
  const int tile = forward_query_tile(D);
  const TileOrder order = forward_order(1, H, G, D, tiles_of(S, tile), S, multiprocessors);
  const auto tickets = steps(order, [&](int reversed) {
    const std::int64_t seen = causal ? std::min<std::int64_t>(S, std::int64_t{order.tiles - reversed} * tile) : S;
    return static_cast<double>(tiles_of(seen, key_tile));
  });
  return ideal_time(tickets) / simulated_time(tickets);
}

double backward_efficiency(std::int64_t S, std::int64_t H, std::int64_t G, std::int64_t D, bool causal) {
  const int tile = backward_query_tile(D);
  const TileOrder order = backward_order(1, H, G, D, tiles_of(S, key_tile), S, false, multiprocessors);
  const auto tickets = steps(order, [&](int keys) {
    const std::int64_t first = causal ? std::int64_t{keys} * key_tile / tile : 0;
    return static_cast<double>((tiles_of(S, tile) - first) * (H / G));
  });
  return ideal_time(tickets) / simulated_time(tickets);
}

/// From 5 tiles a multiprocessor on 3 % are lost at most. With 2 to 5, taking the longest first is itself up to 10 %
/// off the bound: tiles come in so many equal ones that pairs of a long and a short one end at the same time.
void expect_efficient(double efficiency, std::int64_t tickets, const std::string& call) {
  if (tickets < 2 * multiprocessors) return;  // no order helps
  EXPECT_GE(efficiency, tickets < 5 * multiprocessors ? 0.90 : 0.97) << call << ", " << tickets << " tiles";
}

void expect_efficient(std::int64_t S, std::int64_t G, std::int64_t D, bool causal) {
  constexpr std::int64_t H = 16;
  const std::string call = "S " + std::to_string(S) + ", G " + std::to_string(G) + ", D " + std::to_string(D) +
                           (causal ? ", causal" : ", full");
  expect_efficient(forward_efficiency(S, H, G, D, causal), tiles_of(S, forward_query_tile(D)) * H, "forward, " + call);
  expect_efficient(backward_efficiency(S, H, G, D, causal), tiles_of(S, key_tile) * G, "backward, " + call);
}

TEST(HopperTileOrder, KeepsAllMultiprocessorsBusyToTheEnd) {
  for (std::int64_t S = 2048; S <= 65536; S += 1024) {
    for (const std::int64_t G : {8, 16}) {
      for (const std::int64_t D : {64, 128}) {
        for (const bool causal : {false, true}) expect_efficient(S, G, D, causal);
      }
    }
  }
}

TEST(HopperTileOrder, KeepsThemBusyAtTheShapesThatAreJudged) {
  for (const std::int64_t S : {8192, 16384, 32768, 65536}) {
    for (const std::int64_t G : {8, 16}) {
      EXPECT_GE(forward_efficiency(S, 16, G, 128, true), 0.97) << S << " " << G;
      EXPECT_GE(backward_efficiency(S, 16, G, 128, true), 0.97) << S << " " << G;
    }
  }
}

TEST(HopperTileOrder, GivesEveryTileOfEveryHeadOnce) {
  for (const int all_heads : {1, 2, 3, 7, 16, 33}) {
    for (const int tiles : {1, 5, 64}) {
      for (const int at_once : {1, 2, 5, 100}) {
        const TileOrder order = tile_order(tiles, all_heads, at_once, 2);
        std::set<std::pair<int, int>> seen;
        for (int ticket = 0; ticket < order.count(); ++ticket) {
          const auto [tile, head] = order[ticket];
          ASSERT_TRUE(tile >= 0 && tile < tiles && head >= 0 && head < all_heads);
          EXPECT_TRUE(seen.emplace(tile, head).second) << "tile " << tile << " of head " << head << " twice";
        }
        EXPECT_EQ(std::ssize(seen), tiles * all_heads);
      }
    }
  }
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
