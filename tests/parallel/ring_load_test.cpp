// What ranks have to do: pairs within documents against counting them one by one, and the load of layouts.
#include "parallel/ring/ring_load.h"

#include <gtest/gtest.h>

#include <numeric>

#include "framework/random.h"

namespace ringtrain {
namespace {

TEST(RingLoad, PairsWithinDocumentsAreThoseThatOneCounts) {
  constexpr std::int64_t B = 3, S = 61;
  constexpr int N = 3;
  std::uint64_t draws = 0;
  const auto draw = [&](std::uint64_t bound) {
    return static_cast<std::int64_t>(random_below(3, Purpose::test, draws++, bound));
  };
  for (const Layout layout : all_layouts) {
    for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{true, 5}, AttentionMask{false, 0}}) {
      std::vector<std::int32_t> of_sequences(B * S);  // [B, S]
      std::vector<DocumentStarts> starts(B, {0});
      for (std::int64_t b = 0; b < B; ++b) {
        std::int32_t document = 0;
        for (std::int64_t i = 0; i < S; ++i) {
          if (i > 0 && draw(6) == 0) {
            ++document;
            starts[b].push_back(i);
          }
          of_sequences[b * S + i] = document;
        }
      }
      std::vector<SegmentList> segments;
      std::vector<std::vector<std::int32_t>> documents(N);
      for (int rank = 0; rank < N; ++rank) {
        segments.push_back(shard_segments(layout, S, N, rank));
        for (std::int64_t b = 0; b < B; ++b) {
          for (std::int64_t t = 0; t < token_count(segments.back()); ++t) {
            documents[rank].push_back(of_sequences[b * S + position_of(segments.back(), t)]);
          }
        }
      }
      for (std::size_t i = 0; i < N; ++i) {
        for (std::size_t j = 0; j < N; ++j) {
          const std::int64_t Tq = token_count(segments[i]), Tk = token_count(segments[j]);
          std::int64_t expected = 0;
          for (std::int64_t b = 0; b < B; ++b) {
            for (std::int64_t q = 0; q < Tq; ++q) {
              for (std::int64_t k = 0; k < Tk; ++k) {
                expected += visible(mask, position_of(segments[i], q), position_of(segments[j], k)) &&
                                    documents[i][b * Tq + q] == documents[j][b * Tk + k]
                                ? 1
                                : 0;
              }
            }
          }
          EXPECT_EQ(visible_pairs(mask, segments[i], segments[j], B, starts), expected)
              << name_of(layout) << ", ranks " << i << ", " << j;
          EXPECT_EQ(visible_pairs(mask, segments[i], segments[j], B, {}),
                    B * visible_pairs(mask, segments[i], segments[j]));
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
  // A window evens out a contiguous ring: only the first rank has less.
  EXPECT_LE(imbalance(pairs_by_rank({true, 64}, Layout::contiguous, 16384, 4)), 1.003);
}

TEST(RingLoad, ImbalanceIsTheLargestOverTheMean) {
  EXPECT_EQ(imbalance(std::vector<std::int64_t>{1, 2, 3}), 1.5);
  EXPECT_EQ(imbalance(std::vector<std::int64_t>{5, 5}), 1);
  EXPECT_EQ(imbalance(std::vector<std::int64_t>{0, 4}), 2);
  EXPECT_EQ(imbalance(std::vector<std::int64_t>{0, 0}), 1);  // nothing to do is even
}

}  // namespace
}  // namespace ringtrain
