// Fill, copy, add, scale, sum of squares, and normals, at sizes around chunks and vectors, and without elements.
#include "kernels/elementwise.h"

#include "tests/support/kernel_harness.h"

namespace ringtrain::testing {
namespace {

constexpr std::int64_t sizes[] = {0, 1, 3, 17, 257, 1000, 16384, 70001, 1200007};

template <class R>
class ElementwiseTest : public ::testing::Test {};
TYPED_TEST_SUITE(ElementwiseTest, RealTypes);

TYPED_TEST(ElementwiseTest, FillsCopiesScalesAndAdds) {
  using R = TypeParam;
  CpuStream stream(3);
  for (std::int64_t n : sizes) {
    const auto x = random_vector<R>(n, 1), y0 = random_vector<R>(n, 2);
    auto filled = y0, copied = y0, sum = y0, scaled = y0;
    fill(stream, view_of(filled), 1.5);
    copy(stream, view_of(copied), view_of(x));
    add(stream, view_of(sum), view_of(x));
    scale(stream, view_of(scaled), -2.625);
    EXPECT_EQ(filled, std::vector<R>(x.size(), R(1.5)));
    EXPECT_EQ(copied, x);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sum[i], y0[i] + x[i]);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(scaled[i], y0[i] * R(-2.625));
  }
}

TYPED_TEST(ElementwiseTest, SumOfSquares) {
  using R = TypeParam;
  CpuStream stream;
  for (std::int64_t n : sizes) {
    const auto x = random_vector<R>(n, 1);
    double expected = 0, result = 7;
    for (R value : x) expected += static_cast<double>(value) * static_cast<double>(value);
    sum_of_squares(stream, host_view(&result, {1}), view_of(x), true);
    EXPECT_NEAR(result, 7 + expected, 1e-12 * (7 + expected)) << n;
    sum_of_squares(stream, host_view(&result, {1}), view_of(x), false);
    EXPECT_NEAR(result, expected, 1e-12 * expected) << n;
  }
  const auto x = random_vector<R>(1200007, 1);
  expect_same_bits_for_any_workers([&](Stream& any) {
    std::vector<double> result(1);
    sum_of_squares(any, view_of(result), view_of(x), false);
    return result;
  });
}

TEST(SumOfSquaresTest, OverflowsInNoFloat) {
  CpuStream stream;
  const std::vector<float> x(100, 1e30F);
  double result = 0;
  sum_of_squares(stream, host_view(&result, {1}), view_of(x), false);
  EXPECT_NEAR(result, 1e62, 1e55);
}

TYPED_TEST(ElementwiseTest, NormalsDependOnlyOnTheIndex) {
  using R = TypeParam;
  CpuStream stream(3);
  std::vector<R> whole(40000), part(100);
  fill_normal(stream, view_of(whole), 0.02, 9, 1000);
  fill_normal(stream, view_of(part), 0.02, 9, 1000 + 20000);
  for (std::size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], whole[20000 + i]);
  double sum = 0, squares = 0;
  for (R value : whole) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value * value);
  }
  EXPECT_NEAR(sum / 40000, 0, 5 * 0.02 / 200);
  EXPECT_NEAR(std::sqrt(squares / 40000), 0.02, 0.0005);
  EXPECT_EQ(part[3], static_cast<R>(0.02 * random_normal(9, Purpose::weights, 21003)));
}

TEST(AddTest, OfFloat32ToBFloat16IsRoundedOnce) {
  CpuStream stream(3);
  for (std::int64_t n : sizes) {
    const auto x = random_vector<float>(n, 1), y = random_vector<float>(n, 2);
    std::vector<BFloat16> sum(y.size());
    for (std::size_t i = 0; i < y.size(); ++i) sum[i] = BFloat16::rounded(y[i]);
    const auto before = sum;
    add(stream, view_of(sum), view_of(x));
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(sum[i].bits, BFloat16::rounded(before[i].value() + x[i]).bits);
    }
  }
}

TEST(CopyTest, TakesAnyType) {
  CpuStream stream;
  const std::vector<std::int32_t> x = {1, -2, 3};
  std::vector<std::int32_t> y(3);
  copy(stream, view_of(y), view_of(x));
  EXPECT_EQ(y, x);
}

}  // namespace
}  // namespace ringtrain::testing
