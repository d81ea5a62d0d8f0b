// Compares table look-up and its gradient with plain loops: repeated rows, both flags, odd widths, no tokens, and bits
// that do not depend on threads.
#include "kernels/embedding.h"

#include <cstdint>

#include "tests/support/error_of.h"
#include "tests/support/kernel_harness.h"

namespace ringtrain::testing {
namespace {

template <class R>
class EmbeddingTest : public ::testing::Test {};
TYPED_TEST_SUITE(EmbeddingTest, RealTypes);

TYPED_TEST(EmbeddingTest, LooksUpAndAddsUp) {
  using R = TypeParam;
  CpuStream stream;
  const std::int64_t rows = 13;
  for (std::int64_t T : {0, 1, 3, 257, 1000}) {
    for (std::int64_t C : {1, 17, 64, 257}) {
      const auto ids = random_integers(T, 1, rows);
      const auto table = random_vector<R>(rows * C, 2), y0 = random_vector<R>(T * C, 3),
                 dy = random_vector<R>(T * C, 4);
      auto y = y0, sum = y0, dtable = table;
      embedding_forward(stream, view_of(y, {T, C}), view_of(ids), view_of(table, {rows, C}), false);
      embedding_forward(stream, view_of(sum, {T, C}), view_of(ids), view_of(table, {rows, C}), true);
      embedding_backward(stream, view_of(dtable, {rows, C}), view_of(ids), view_of(dy, {T, C}));
      auto expected = table;
      for (std::size_t t = 0; t < ids.size(); ++t) {
        for (std::size_t c = 0; c < static_cast<std::size_t>(C); ++c) {
          const std::size_t i = t * static_cast<std::size_t>(C) + c;
          const std::size_t j = static_cast<std::size_t>(ids[t]) * static_cast<std::size_t>(C) + c;
          ASSERT_EQ(y[i], table[j]);
          ASSERT_EQ(sum[i], y0[i] + table[j]);
          expected[j] += dy[i];  // in token order: the same bits
        }
      }
      EXPECT_EQ(dtable, expected) << T << " x " << C;
    }
  }
}

TYPED_TEST(EmbeddingTest, BitsDoNotDependOnThreads) {
  using R = TypeParam;
  const std::int64_t T = 2000, C = 200, rows = 3;
  const auto ids = random_integers(T, 1, rows);
  const auto dy = random_vector<R>(T * C, 2);
  expect_same_bits_for_any_workers([&](Stream& stream) {
    std::vector<R> dtable(rows * C);
    embedding_backward(stream, view_of(dtable, {rows, C}), view_of(ids), view_of(dy, {T, C}));
    return dtable;
  });
}

TYPED_TEST(EmbeddingTest, AnIdOutsideTheTableIsAnErrorBeforeAnythingIsTouched) {
  using R = TypeParam;
  CpuStream stream;
  const std::int64_t rows = 5, C = 3;
  for (const std::int32_t bad : {5, -1, INT32_MAX, INT32_MIN}) {
    const std::vector<std::int32_t> ids{0, 4, bad};
    const auto table = random_vector<R>(rows * C, 1), y0 = random_vector<R>(3 * C, 2);
    auto y = y0, dtable = table;
    error_of(ExitCode::internal, [&] {
      embedding_forward(stream, view_of(y, {3, C}), view_of(ids), view_of(table, {rows, C}), false);
    });
    error_of(ExitCode::internal, [&] {
      embedding_backward(stream, view_of(dtable, {rows, C}), view_of(ids), view_of(y0, {3, C}));
    });
    EXPECT_EQ(y, y0);
    EXPECT_EQ(dtable, table);
  }
}

}  // namespace
}  // namespace ringtrain::testing
