// Tensors compared, in every dtype.
#include "framework/checks/tensor_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "tests/support/error_of.h"

namespace ringtrain {
namespace {

TEST(TensorText, ReadsEveryDtype) {
  double float64 = 200;
  float float32 = 200;
  BFloat16 bfloat16 = BFloat16::rounded(200);
  std::int64_t int64 = 200;
  std::int32_t int32 = 200;
  std::uint8_t uint8 = 200;
  for (const TensorView& x : {host_view(&float32, {1}), host_view(&bfloat16, {1}), host_view(&int64, {1}),
                              host_view(&int32, {1}), host_view(&uint8, {1})}) {
    EXPECT_EQ(compare_tensors(host_view(&float64, {1}), x).differing, 0) << name_of(x.dtype);
  }
}

TEST(TensorText, RefusesWhatCannotBeCompared) {
  const std::vector<float> x(6);
  const ConstTensorView two = host_view(x.data(), {2}), six = host_view(x.data(), {2, 3});
  testing::expect_refused("b has the shape [2, 3], but must have that of a, [2]", [&] { compare_tensors(two, six); });
  const TensorView elsewhere{nullptr, {1}, DType::float32, Device::cuda(0)};
  testing::expect_refused("a is on cuda:0, but must be on cpu", [&] { compare_tensors(elsewhere, elsewhere); });
}

class TensorComparisonTest : public ::testing::Test {
 protected:
  TensorComparisonTest() : a(6), b(6) {
    std::iota(a.begin(), a.end(), -1.0);  // -1 ... 4
    b = a;
  }
  TensorComparison compare(const Tolerance& tolerance = {}) const {
    return compare_tensors(host_view(a.data(), {2, 3}), host_view(b.data(), {2, 3}), tolerance);
  }
  std::vector<double> a, b;
};

TEST_F(TensorComparisonTest, FindsTheFirstElementAndCountsTheRest) {
  EXPECT_EQ(compare().differing, 0);
  EXPECT_EQ(compare().first, -1);
  b[2] = -a[2];
  b[5] = 4.5;
  const TensorComparison found = compare();
  EXPECT_EQ(found.differing, 2);
  EXPECT_EQ(found.first, 2);
  EXPECT_EQ(found.a, 1.0);
  EXPECT_EQ(found.b, -1.0);
  EXPECT_EQ(found.maximum, 4.5);
  EXPECT_EQ(found.greatest, 2.0);
  EXPECT_EQ(location_text({2, 3}, found.first), "[0, 2]");
}

TEST_F(TensorComparisonTest, ToleranceIsRelativeToTheMaximumOrAbsolute) {
  b[0] += 4e-6;
  EXPECT_EQ(compare({.relative = 1.1e-6}).differing, 0);
  EXPECT_EQ(compare({.relative = 0.9e-6}).differing, 1);
  EXPECT_EQ(compare({.absolute = 4.1e-6}).differing, 0);
  EXPECT_EQ(compare({.absolute = 3.9e-6}).differing, 1);
  EXPECT_DOUBLE_EQ(compare({.relative = 1}).greatest, b[0] - a[0]) << "the greatest knows no tolerance";
}

TEST_F(TensorComparisonTest, NanEqualsOnlyNan) {
  a[1] = b[1] = NAN;
  a[2] = b[2] = INFINITY;
  EXPECT_EQ(compare().differing, 0);
  for (const double other : {NAN, INFINITY, -INFINITY}) {
    b[2] = 1.0;
    a[2] = other;
    EXPECT_EQ(compare({.relative = 1e9, .absolute = 1e9}).first, 2) << other;
    EXPECT_EQ(compare().greatest, INFINITY) << other;
  }
  a[2] = INFINITY;
  b[2] = -INFINITY;
  EXPECT_EQ(compare().differing, 1);
}

}  // namespace
}  // namespace ringtrain
