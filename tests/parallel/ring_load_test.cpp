// The work of ranks: pairs within documents compared with counting them one by one, and the load of layouts.
#include "parallel/ring/ring_load.h"

#include <gtest/gtest.h>

#include <numeric>

#include "framework/random.h"

namespace ringtrain {
namespace {

/// Returns the number of pairs in sequences whose tokens have these documents [B, S], counted one by one.
std::int64_t counted(const AttentionMask& mask, const SegmentList& queries, const SegmentList& keys,
                     const std::vector<std::int32_t>& documents, std::int64_t S) {
  std::int64_t pairs = 0;
  for (std::int64_t first = 0; first < std::ssize(documents); first += S) {
    for (std::int64_t q = 0; q < token_count(queries); ++q) {
      for (std::int64_t k = 0; k < token_count(keys); ++k) {
        const std::int64_t query = position_of(queries, q), key = position_of(keys, k);
        pairs += visible(mask, query, key) && documents[first + query] == documents[first + key] ? 1 : 0;
      }
    }
  }
  return pairs;
}

TEST(RingLoad, PairsWithinDocumentsAreThoseThatOneCounts) {
  constexpr std::int64_t B = 3, S = 61;
  constexpr int N = 3;
  std::uint64_t draws = 0;
  for (const Layout layout : all_layouts) {
    for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{true, 5}, AttentionMask{false, 0}}) {
      std::vector<std::int32_t> documents;  // [B, S]
      std::vector<DocumentStarts> starts(B, {0});
      for (std::int64_t b = 0; b < B; ++b) {
        for (std::int64_t i = 0; i < S; ++i) {
          if (i > 0 && random_below(3, Purpose::test, draws++, 6) == 0) starts[b].push_back(i);
          documents.push_back(static_cast<std::int32_t>(starts[b].size()));
        }
      }
      for (int i = 0; i < N; ++i) {
        for (int j = 0; j < N; ++j) {
          const SegmentList queries = shard_segments(layout, S, N, i), keys = shard_segments(layout, S, N, j);
          EXPECT_EQ(visible_pairs(mask, queries, keys, B, starts), counted(mask, queries, keys, documents, S))
              << name_of(layout) << ", ranks " << i << ", " << j;
          EXPECT_EQ(visible_pairs(mask, queries, keys, B, {}), B * visible_pairs(mask, queries, keys));
        }
      }
    }
  }
}

TEST(RingLoad, ZigzagIsEvenAndContiguousIsNot) {
  const AttentionMask causal;
  for (const int N : {2, 3, 4, 8}) {
    const std::int64_t S = 4096 * N;
    const double zigzag = imbalance(pairs_by_rank(causal, Layout::zigzag, S, N));
    EXPECT_GE(zigzag, 1);
    EXPECT_LE(zigzag, 1.0005);
    EXPECT_NEAR(imbalance(pairs_by_rank(causal, Layout::contiguous, S, N)), 2 - 1.0 / N, 1e-3);
    EXPECT_LE(imbalance(pairs_by_rank(causal, Layout::striped, S, N)), 1.001);
    EXPECT_EQ(imbalance(pairs_by_rank({false, 0}, Layout::contiguous, S, N)), 1);
    const auto pairs = pairs_by_rank(causal, Layout::contiguous, S, N);
    EXPECT_EQ(std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0}), S * (S + 1) / 2);
  }
  // A window balances a contiguous ring: only the first rank has less.
  EXPECT_LE(imbalance(pairs_by_rank({true, 64}, Layout::contiguous, 16384, 4)), 1.003);
}

TEST(RingLoad, ImbalanceIsTheLargestOverTheMean) {
  EXPECT_EQ(imbalance(std::vector<std::int64_t>{1, 2, 3}), 1.5);
  EXPECT_EQ(imbalance(std::vector<std::int64_t>{5, 5}), 1);
  EXPECT_EQ(imbalance(std::vector<std::int64_t>{0, 4}), 2);
  EXPECT_EQ(imbalance(std::vector<std::int64_t>{0, 0}), 1);  // no work counts as balanced
}

}  // namespace
}  // namespace ringtrain
