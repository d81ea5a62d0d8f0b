// The components of attention on a CPU: the exponential's stated error, the small matrix products at every edge, the
// transposes, and the cutting and clipping of tiles compared with plain loops over positions.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "framework/random.h"
#include "kernels/cpu/attention_gemm.h"
#include "kernels/cpu/attention_simd.h"
#include "kernels/cpu/attention_tiles.h"

namespace ringtrain::cpu {
namespace {

template <class T>
T exp2_of(T x) {
  return exp2<T>(broadcast<T>(x))[0];
}

TEST(AttentionParts, ExponentialKeepsItsErrorBound) {
  double worst = 0;
  for (float x = -126; x < 127; x += 0.00037F) {
    worst = std::max(worst, std::abs(static_cast<double>(exp2_of(x)) / std::exp2(static_cast<double>(x)) - 1));
  }
  EXPECT_LT(worst, 1.5e-7);
  long double worst_double = 0;
  for (double x = -1022; x < 1023; x += 0.00337) {
    const long double exact = std::exp2(static_cast<long double>(x));
    worst_double = std::max(worst_double, std::abs(static_cast<long double>(exp2_of(x)) / exact - 1));
  }
  EXPECT_LT(worst_double, 3e-16L);
}

TEST(AttentionParts, ExponentialAtItsEnds) {
  EXPECT_EQ(exp2_of(0.0F), 1.0F);
  EXPECT_EQ(exp2_of(0.0), 1.0);
  for (float x : {-126.6F, -1000.0F, -1e30F, -std::numeric_limits<float>::infinity()}) EXPECT_EQ(exp2_of(x), 0.0F);
  for (double x : {-1022.6, -1e300, -std::numeric_limits<double>::infinity()}) EXPECT_EQ(exp2_of(x), 0.0);
  EXPECT_TRUE(std::isnan(exp2_of(std::nanf(""))));
  EXPECT_TRUE(std::isnan(exp2_of(std::nan(""))));
}

template <class T, Order order, Store mode>
void check_product(std::int64_t M, std::int64_t N, std::int64_t K) {
  const std::int64_t wide = panel_width<T>, a_stride = (order == Order::rows ? K : M) + 3;
  std::vector<T> a((order == Order::rows ? M : K) * a_stride), b(static_cast<std::size_t>(K * wide)),
      c(static_cast<std::size_t>(M * wide + wide), T{5});
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(i % 7);  // small integers: sums are exact
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>(i % 5);
  gemm_panel<T, order, mode>(M, N, K, a.data(), a_stride, b.data(), wide, c.data(), wide);
  for (std::int64_t i = 0; i < M; ++i) {
    for (std::int64_t j = 0; j < N; ++j) {
      T sum = mode == Store::add ? T{5} : T{0};
      for (std::int64_t p = 0; p < K; ++p) {
        const std::int64_t at = order == Order::rows ? i * a_stride + p : p * a_stride + i;
        sum += a[at] * b[p * wide + j];
      }
      ASSERT_EQ(c[i * wide + j], sum) << M << " x " << N << " x " << K << " at " << i << ", " << j;
    }
    const std::int64_t whole = (N + lanes<T> - 1) / lanes<T> * lanes<T>;
    for (std::int64_t j = whole; j < wide; ++j) ASSERT_EQ(c[i * wide + j], T{5}) << "overrun";
  }
  for (std::int64_t j = 0; j < wide; ++j) ASSERT_EQ(c[M * wide + j], T{5}) << "overrun";
}

TEST(AttentionParts, ProductsAtEveryEdge) {
  for (std::int64_t M : {1, 2, 5, 6, 7, 13, 14, 15, 29, 64}) {
    for (std::int64_t N : {1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64}) {
      for (std::int64_t K : {0, 1, 2, 9}) {
        if (N <= panel_width<float>) {
          check_product<float, Order::rows, Store::overwrite>(M, N, K);
          check_product<float, Order::columns, Store::add>(M, N, K);
        }
        if (N <= panel_width<double>) {
          check_product<double, Order::rows, Store::overwrite>(M, N, K);
          check_product<double, Order::columns, Store::add>(M, N, K);
        }
      }
    }
  }
}

template <class T>
void check_transpose(std::int64_t rows, std::int64_t columns) {
  std::vector<T> from(rows * (columns + 2)), to(static_cast<std::size_t>(columns * (rows + 1)));
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<T>(i);
  transpose(to.data(), rows + 1, from.data(), columns + 2, rows, columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) ASSERT_EQ(to[j * (rows + 1) + i], from[i * (columns + 2) + j]);
  }
}

TEST(AttentionParts, Transposes) {
  for (std::int64_t rows : {1, 3, 8, 16, 33, 64}) {
    for (std::int64_t columns : {1, 7, 16, 20, 64}) {
      check_transpose<float>(rows, columns);
      check_transpose<double>(rows, columns);
    }
  }
}

const std::vector<SegmentList> shards = {{},
                                         {{0, 1, 1}},
                                         {{0, 1, 300}},
                                         {{37, 1, 300}},
                                         {{2, 5, 150}},
                                         {{10, 1, 60}, {70, 1, 0}, {500, 3, 90}},
                                         {{128, 1, 128}}};

TEST(AttentionParts, TilesCoverEveryTokenOnceAndAreCutAtGlobalPositions) {
  for (const SegmentList& segments : shards) {
    const TileList tiles(segments, 64);
    EXPECT_LE(tiles.count(), TileList::bound(token_count(segments), 64));
    std::int64_t next = 0;
    for (std::int64_t index = 0; index < tiles.count(); ++index) {
      const Tile tile = tiles[index];
      ASSERT_EQ(tile.begin, next);
      ASSERT_GE(tile.count, 1);
      next += tile.count;
      const std::int64_t cell = 64 * tile.stride;
      for (std::int64_t i = 0; i < tile.count; ++i) {
        ASSERT_EQ(tile.position(i), position_of(segments, tile.begin + i));
        ASSERT_EQ(tile.position(i) / cell, tile.start / cell) << "a tile crosses a cut";
      }
    }
    EXPECT_EQ(next, token_count(segments));
  }
}

std::vector<std::int32_t> documents_of(const SegmentList& segments, std::int64_t length) {
  std::vector<std::int32_t> documents;
  for (std::int64_t i = 0; length > 0 && i < token_count(segments); ++i) {
    documents.push_back(static_cast<std::int32_t>(position_of(segments, i) / length));
  }
  return documents;
}

/// Clipping must keep every visible pair and be exact in positions; all_visible must mean all.
void check_clipping(const AttentionMask& mask, const Tile& q, const Tile& k, const std::int32_t* q_documents,
                    const std::int32_t* k_documents) {
  const Extent q_extent = extent_of(q, {0, q.count}, q_documents), k_extent = extent_of(k, {0, k.count}, k_documents);
  const LocalRange k_range = clip_keys(mask, k, k_documents, q_extent);
  const LocalRange q_range = clip_queries(mask, q, q_documents, k_extent);
  LocalRange seen{k.count, 0};
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < q.count; ++i) {
    for (std::int64_t j = 0; j < k.count; ++j) {
      if (!visible(mask, q.position(i), k.position(j))) continue;
      if (q_documents && q_documents[q.begin + i] != k_documents[k.begin + j]) continue;
      seen = {std::min(seen.begin, j), std::max(seen.end, j + 1)};
      ++pairs;
      ASSERT_TRUE(i >= q_range.begin && i < q_range.end && j >= k_range.begin && j < k_range.end);
    }
  }
  ASSERT_TRUE(!all_visible(mask, q_extent, k_extent) || pairs == q.count * k.count);
  if (!q_documents && q.stride == 1 && k.stride == 1 && !k_range.empty()) {
    ASSERT_EQ(k_range.begin, seen.begin);
    ASSERT_EQ(k_range.end, seen.end);
  }
}

TEST(AttentionParts, ClippingKeepsWhatIsVisible) {
  for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{false, 0}, AttentionMask{true, 1},
                                   AttentionMask{true, 90}, AttentionMask{false, 90}}) {
    for (const SegmentList& from : shards) {
      for (const SegmentList& to : shards) {
        for (std::int64_t length : {0, 50}) {
          const std::vector<std::int32_t> q_documents = documents_of(from, length),
                                          k_documents = documents_of(to, length);
          const TileList queries(from, 64), keys(to, 32);
          for (std::int64_t qi = 0; qi < queries.count(); ++qi) {
            for (std::int64_t ki = 0; ki < keys.count(); ++ki) {
              check_clipping(mask, queries[qi], keys[ki], length > 0 ? q_documents.data() : nullptr,
                             length > 0 ? k_documents.data() : nullptr);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringtrain::cpu
