// Layouts tile the sequence for every length and ring size; visibility of tiles and shards compared with all pairs.
#include "framework/sequence/segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "framework/error.h"
#include "framework/random.h"
#include "framework/sequence/mesh.h"

namespace ringtrain {
namespace {

std::vector<std::int64_t> positions(const SegmentList& segments) {
  std::vector<std::int64_t> result;
  for (const Segment& segment : segments) {
    for (std::int64_t i = 0; i < segment.count; ++i) result.push_back(segment.start + segment.stride * i);
  }
  return result;
}

TEST(Layouts, EveryPositionIsOnOneRankOnce) {
  for (const Layout layout : all_layouts) {
    for (std::int64_t S = 0; S <= 40; ++S) {
      for (int N = 1; N <= 9; ++N) {
        SCOPED_TRACE(::testing::Message() << name_of(layout) << " S=" << S << " N=" << N);
        std::vector<int> holders(S);
        std::int64_t previous_size = S;
        for (int rank = 0; rank < N; ++rank) {
          const SegmentList segments = shard_segments(layout, S, N, rank);
          const std::vector<std::int64_t> held = positions(segments);
          const auto size = static_cast<std::int64_t>(held.size());
          EXPECT_EQ(token_count(segments), size);
          EXPECT_GE(size, S / N);
          EXPECT_LE(size, (S + N - 1) / N);
          EXPECT_LE(size, previous_size);  // larger shards first
          previous_size = size;
          for (std::size_t i = 0; i < held.size(); ++i) {
            ASSERT_GE(held[i], 0);
            ASSERT_LT(held[i], S);
            ++holders[held[i]];
            if (i > 0) {
              EXPECT_GT(held[i], held[i - 1]);
            }
            EXPECT_EQ(position_of(segments, static_cast<std::int64_t>(i)), held[i]);
          }
          for (const Segment& segment : segments) {
            EXPECT_GE(segment.count, 1);
            EXPECT_GE(segment.stride, 1);
            EXPECT_EQ(segment.last(), segment.position(segment.count - 1));
          }
          EXPECT_LE(segments.size(), layout == Layout::zigzag ? 2u : 1u);
        }
        EXPECT_TRUE(std::all_of(holders.begin(), holders.end(), [](int count) { return count == 1; }));
      }
    }
  }
}

TEST(Layouts, PlacePositionsAsTheirNamesSay) {
  const auto held = [](Layout layout, std::int64_t S, int N) {
    std::vector<std::vector<std::int64_t>> ranks;
    for (int rank = 0; rank < N; ++rank) ranks.push_back(positions(shard_segments(layout, S, N, rank)));
    return ranks;
  };
  using Ranks = std::vector<std::vector<std::int64_t>>;
  EXPECT_EQ(held(Layout::contiguous, 7, 3), (Ranks{{0, 1, 2}, {3, 4}, {5, 6}}));
  EXPECT_EQ(held(Layout::striped, 7, 3), (Ranks{{0, 3, 6}, {1, 4}, {2, 5}}));
  // Chunks r and 2N - 1 - r of 2N.
  EXPECT_EQ(held(Layout::zigzag, 8, 2), (Ranks{{0, 1, 6, 7}, {2, 3, 4, 5}}));
  EXPECT_EQ(held(Layout::zigzag, 12, 3), (Ranks{{0, 1, 10, 11}, {2, 3, 8, 9}, {4, 5, 6, 7}}));
  EXPECT_EQ(held(Layout::zigzag, 2, 3), (Ranks{{0}, {1}, {}}));
}

TEST(Layouts, BeyondTheEndIsAnInternalError) {
  EXPECT_THROW(shard_segments(Layout::zigzag, 8, 2, 2), Error);
  EXPECT_THROW(shard_segments(Layout::zigzag, -1, 2, 0), Error);
  EXPECT_THROW(position_of(shard_segments(Layout::striped, 8, 2, 0), 4), Error);
}

// Reimplemented, so that the product's visible() is not tested with itself.
bool is_visible(bool causal, std::int64_t window, std::int64_t query, std::int64_t key) {
  if (causal && query < key) return false;
  if (window == 0) return true;
  return std::abs(query - key) <= window - 1;
}

TEST(Visibility, AWindowOfWHoldsTheTokenAndTheWMinusOneBeforeIt) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t window : {0, 1, 2, 5}) {
      for (std::int64_t q = 0; q < 12; ++q) {
        for (std::int64_t k = 0; k < 12; ++k) {
          EXPECT_EQ(visible({causal, window}, q, k), is_visible(causal, window, q, k));
        }
      }
    }
  }
  int keys = 0;
  for (std::int64_t k = 0; k < 100; ++k) keys += visible({true, 5}, 50, k);
  EXPECT_EQ(keys, 5);
}

TEST(Visibility, IntervalsHoldWhatAnyAndWhatEveryTokenSees) {
  const auto holds = [](const PositionRange& interval, std::int64_t at) {
    return interval.first <= at && at <= interval.last;
  };
  for (const bool causal : {false, true}) {
    for (const std::int64_t window : {0, 1, 2, 6, 20}) {
      const AttentionMask mask{causal, window};
      for (std::int64_t first = 0; first < 9; ++first) {
        for (std::int64_t last = first; last < 9; ++last) {
          for (std::int64_t other = -9; other < 18; ++other) {
            int keys = 0, queries = 0;
            for (std::int64_t at = first; at <= last; ++at) {
              keys += is_visible(causal, window, at, other);
              queries += is_visible(causal, window, other, at);
            }
            const PositionRange tokens{first, last};
            const auto all = static_cast<int>(last - first + 1);
            ASSERT_EQ(holds(keys_seen_by(mask, tokens), other), keys > 0);
            ASSERT_EQ(holds(keys_seen_by_all(mask, tokens), other), keys == all);
            ASSERT_EQ(holds(queries_that_see(mask, tokens), other), queries > 0);
            ASSERT_EQ(holds(queries_that_see_all(mask, tokens), other), queries == all);
          }
        }
      }
    }
  }
}

TEST(Visibility, OfATileIsThatOfAllItsPairs) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t window : {0, 1, 2, 3, 6, 20}) {
      for (std::int64_t q0 = 0; q0 < 9; ++q0) {
        for (std::int64_t q1 = q0; q1 < 9; ++q1) {
          for (std::int64_t k0 = 0; k0 < 9; ++k0) {
            for (std::int64_t k1 = k0; k1 < 9; ++k1) {
              std::int64_t pairs = 0;
              for (std::int64_t q = q0; q <= q1; ++q) {
                for (std::int64_t k = k0; k <= k1; ++k) pairs += is_visible(causal, window, q, k);
              }
              const std::int64_t all = (q1 - q0 + 1) * (k1 - k0 + 1);
              const TileVisibility expected = pairs == 0     ? TileVisibility::none
                                              : pairs == all ? TileVisibility::all
                                                             : TileVisibility::some;
              ASSERT_EQ(tile_visibility({causal, window}, {q0, q1}, {k0, k1}), expected)
                  << "causal " << causal << " window " << window << " queries " << q0 << ".." << q1 << " keys " << k0
                  << ".." << k1;
            }
          }
        }
      }
    }
  }
}

/// Returns the extents of a shard, from the document of every position of the sequence.
std::vector<SegmentExtent> extents(const SegmentList& segments, const std::vector<std::int32_t>& documents) {
  std::vector<SegmentExtent> result;
  for (const Segment& segment : segments) {
    result.push_back({segment.start, segment.last(), documents[segment.start], documents[segment.last()]});
  }
  return result;
}

TEST(Visibility, AShardThatMayNotSeeAnotherSeesNoneOfItsTokens) {
  std::map<Layout, int> refused, exact;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    std::uint64_t index = 0;
    const auto draw = [&](std::uint64_t bound) {
      return static_cast<std::int64_t>(random_below(seed, Purpose::test, index++, bound));
    };
    const std::int64_t S = draw(30), B = 1 + draw(2);
    const int N = static_cast<int>(1 + draw(6));
    const AttentionMask mask{draw(4) != 0, draw(2) == 0 ? 0 : 1 + draw(10)};
    std::vector<std::vector<std::int32_t>> documents;
    for (std::int64_t b = 0; b < B; ++b) {
      std::int32_t document = 0;
      documents.emplace_back();
      for (std::int64_t i = 0; i < S; ++i) documents.back().push_back(document += draw(6) == 0);
    }
    for (const Layout layout : all_layouts) {
      for (int i = 0; i < N; ++i) {
        for (int j = 0; j < N; ++j) {
          const SegmentList queries = shard_segments(layout, S, N, i), keys = shard_segments(layout, S, N, j);
          ShardExtents query_extents, key_extents;
          bool any = false;
          for (const auto& ids : documents) {
            query_extents.push_back(extents(queries, ids));
            key_extents.push_back(extents(keys, ids));
            for (const std::int64_t q : positions(queries)) {
              for (const std::int64_t k : positions(keys)) {
                any |= is_visible(mask.causal, mask.window, q, k) && ids[q] == ids[k];
              }
            }
          }
          const bool may = may_see(mask, query_extents, key_extents);
          if (any) {
            ASSERT_TRUE(may) << name_of(layout) << " seed " << seed << " ranks " << i << ", " << j;
          }
          refused[layout] += !may;
          exact[layout] += may == any;
        }
      }
    }
  }
  // It does refuse, mostly if shards are contiguous: there it errs only where a segment's extent combines positions and
  // documents that do not occur together.
  EXPECT_GT(refused[Layout::contiguous], 1000);
  EXPECT_GT(refused[Layout::zigzag], 300);
  int pairs = 0;
  for (const auto& [layout, count] : exact) pairs = std::max(pairs, count);
  EXPECT_EQ(pairs, exact[Layout::contiguous]);
}

TEST(Visibility, ShardsThatMeetNowhereAreFound) {
  const auto one = [](std::int64_t p0, std::int64_t p1, std::int32_t d0, std::int32_t d1) {
    return ShardExtents{{SegmentExtent{p0, p1, d0, d1}}};
  };
  EXPECT_TRUE(may_see({true, 0}, one(10, 19, 0, 0), one(0, 9, 0, 0)));
  EXPECT_FALSE(may_see({true, 0}, one(0, 9, 0, 0), one(10, 19, 0, 0)));
  EXPECT_TRUE(may_see({false, 0}, one(0, 9, 0, 0), one(10, 19, 0, 0)));
  EXPECT_FALSE(may_see({true, 0}, one(10, 19, 1, 2), one(0, 9, 0, 0)));
  EXPECT_TRUE(may_see({true, 0}, one(10, 19, 1, 2), one(0, 9, 0, 1)));
  EXPECT_TRUE(may_see({true, 2}, one(10, 19, 0, 0), one(0, 9, 0, 0)));
  EXPECT_FALSE(may_see({true, 1}, one(10, 19, 0, 0), one(0, 9, 0, 0)));
  // Documents of one sequence of the micro-batch, positions of another: still no pair.
  ShardExtents queries = one(10, 19, 1, 1), keys = one(0, 9, 0, 0);
  queries.push_back({{0, 9, 0, 0}});
  keys.push_back({{10, 19, 0, 0}});
  EXPECT_FALSE(may_see({true, 0}, queries, keys));
  EXPECT_FALSE(may_see({false, 0}, ShardExtents{{}}, ShardExtents{{SegmentExtent{}}}));
}

std::int64_t counted_pairs(const AttentionMask& mask, const SegmentList& queries, const SegmentList& keys) {
  std::int64_t pairs = 0;
  for (const std::int64_t query : positions(queries)) {
    for (const std::int64_t key : positions(keys)) pairs += visible(mask, query, key) ? 1 : 0;
  }
  return pairs;
}

TEST(VisiblePairs, AreThoseThatOneCounts) {
  std::uint64_t draws = 0;
  const auto draw = [&](std::uint64_t bound) {
    return static_cast<std::int64_t>(random_below(7, Purpose::test, draws++, bound));
  };
  for (int i = 0; i < 4000; ++i) {
    const Segment query{draw(60), 1 + draw(7), draw(25)}, key{draw(60), 1 + draw(7), draw(25)};
    const AttentionMask mask{draw(2) == 0, draw(3) == 0 ? 0 : 1 + draw(40)};
    EXPECT_EQ(visible_pairs(mask, {{query}}, {{key}}), counted_pairs(mask, {query}, {key}))
        << query.start << " " << query.stride << " " << query.count << ", " << key.start << " " << key.stride << " "
        << key.count << ", causal " << mask.causal << ", window " << mask.window;
  }
}

TEST(VisiblePairs, OfAllShardsAreThoseOfTheSequence) {
  for (const Layout layout : all_layouts) {
    for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{true, 9}, AttentionMask{false, 0}}) {
      const std::int64_t S = 101;
      const int N = 4;
      std::int64_t sum = 0;
      for (int i = 0; i < N; ++i) {
        for (int j = 0; j < N; ++j) {
          const SegmentList queries = shard_segments(layout, S, N, i), keys = shard_segments(layout, S, N, j);
          EXPECT_EQ(visible_pairs(mask, queries, keys), counted_pairs(mask, queries, keys));
          sum += visible_pairs(mask, queries, keys);
        }
      }
      EXPECT_EQ(sum, visible_pairs(mask, {{Segment{0, 1, S}}}, {{Segment{0, 1, S}}}));
    }
  }
  const Segment million{0, 1, 1'000'000};  // no loop over tokens, no overflow
  EXPECT_EQ(visible_pairs({true, 0}, {{million}}, {{million}}), 500'000'500'000);
}

TEST(MeshTest, WorldRankIsDataTimesSequenceRanksPlusSequence) {
  const Mesh mesh{3, 4};
  EXPECT_EQ(mesh.size(), 12);
  for (int rank = 0; rank < 12; ++rank) {
    EXPECT_EQ(mesh.data_index(rank) * 4 + mesh.sequence_index(rank), rank);
    EXPECT_LT(mesh.sequence_index(rank), 4);
  }
}

TEST(Segments, ARangeIsWhereItsTokensAre) {
  for (const Layout layout : all_layouts) {
    const SegmentList segments = shard_segments(layout, 29, 3, 1);
    const std::int64_t T = token_count(segments);
    for (std::int64_t begin = 0; begin <= T; ++begin) {
      for (std::int64_t end = begin; end <= T; ++end) {
        const SegmentList range = segments_of_range(segments, begin, end);
        ASSERT_EQ(token_count(range), end - begin);
        for (std::int64_t i = begin; i < end; ++i) EXPECT_EQ(position_of(range, i - begin), position_of(segments, i));
        for (const Segment& segment : range) EXPECT_GT(segment.count, 0);
      }
    }
    EXPECT_EQ(segments_of_range(segments, 0, T), segments);
  }
}

}  // namespace
}  // namespace ringtrain
