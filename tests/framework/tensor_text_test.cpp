// Tensors as text and compared, in every dtype.
#include "framework/checks/tensor_text.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/support/error_of.h"

namespace ringtrain {
namespace {

TEST(TensorText, ShowsDtypeShapeAndRows) {
  std::array<float, 6> values{1, -2.5f, 3, 0, 1e-7f, 1e9f};
  EXPECT_EQ(to_text(host_view(values.data(), {2, 3})), "float32 [2, 3]\n[[1, -2.5, 3],\n [0, 1e-07, 1e+09]]");
  EXPECT_EQ(to_text(host_view(values.data(), {1, 2, 3})), "float32 [1, 2, 3]\n[[[1, -2.5, 3],\n  [0, 1e-07, 1e+09]]]");
  EXPECT_EQ(to_text(host_view(values.data(), {0, 3})), "float32 [0, 3]\n[]");
  EXPECT_EQ(to_text(host_view(values.data(), {})), "float32 []\n1");
  EXPECT_EQ(to_text(host_view(static_cast<float*>(nullptr), {2})), "float32 [2] without storage");
}

TEST(TensorText, ShowsTheEndsOfWhatIsLong) {
  std::vector<std::int32_t> values(100);
  std::iota(values.begin(), values.end(), 0);
  EXPECT_EQ(to_text(host_view(values.data(), {100}), 4), "int32 [100]\n[0, 1, ..., 98, 99]");
  EXPECT_EQ(to_text(host_view(values.data(), {100}), 3), "int32 [100]\n[0, 1, ..., 99]");
  EXPECT_EQ(to_text(host_view(values.data(), {100}), 1), "int32 [100]\n[0, ...]");
  EXPECT_EQ(to_text(host_view(values.data(), {4}), 4), "int32 [4]\n[0, 1, 2, 3]");
  EXPECT_EQ(to_text(host_view(values.data(), {10, 10}), 2), "int32 [10, 10]\n[[0, ..., 9],\n ...,\n [90, ..., 99]]");
}

TEST(TensorText, ReadsEveryDtype) {
  double float64 = 0.1;
  BFloat16 bfloat16 = BFloat16::rounded(-1.5f);
  std::int64_t int64 = (std::int64_t{1} << 62) + 1;
  std::uint8_t uint8 = 200;
  EXPECT_EQ(to_text(host_view(&float64, {1})), "float64 [1]\n[0.1]");
  EXPECT_EQ(to_text(host_view(&bfloat16, {1})), "bfloat16 [1]\n[-1.5]");
  EXPECT_EQ(to_text(host_view(&int64, {1})), "int64 [1]\n[4611686018427387905]");
  EXPECT_EQ(to_text(host_view(&uint8, {1})), "uint8 [1]\n[200]");
}

TEST(TensorText, RefusesMemoryOfADevice) {
  const TensorView elsewhere{nullptr, {1}, DType::float32, Device::cuda(0)};
  testing::expect_refused("x lies on cuda:0, but must lie on cpu", [&] { to_text(elsewhere); });
  testing::expect_refused("a lies on cuda:0, but must lie on cpu", [&] { first_difference(elsewhere, elsewhere); });
}

TEST(TensorText, RefusesWhatCannotBeCompared) {
  const std::vector<float> x(6);
  const ConstTensorView two = host_view(x.data(), {2}), six = host_view(x.data(), {2, 3});
  testing::expect_refused("b has the shape [2, 3], but must have that of a, [2]", [&] { compare_tensors(two, six); });
  testing::expect_refused("max_shown is 0, but must be 1 or more", [&] { to_text(two, 0); });
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
  EXPECT_EQ(first_difference(host_view(a.data(), {2, 3}), host_view(b.data(), {2, 3})),
            "2 of 6 elements differ, first [0, 2]: 1 and -1; the greatest difference is 0.444 of the maximum 4.5");
}

TEST_F(TensorComparisonTest, ToleranceIsRelativeToTheMaximumOrAbsolute) {
  b[0] += 4e-6;
  EXPECT_EQ(compare({.relative = 1.1e-6}).differing, 0);
  EXPECT_EQ(compare({.relative = 0.9e-6}).differing, 1);
  EXPECT_EQ(compare({.absolute = 4.1e-6}).differing, 0);
  EXPECT_EQ(compare({.absolute = 3.9e-6}).differing, 1);
  EXPECT_DOUBLE_EQ(compare({.relative = 1}).greatest, b[0] - a[0]) << "the greatest knows no tolerance";
}

TEST_F(TensorComparisonTest, WhatIsNoNumberEqualsItsLikeAlone) {
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

TEST_F(TensorComparisonTest, ComparesDtypesByValueAndShapesFirst) {
  std::vector<float> narrow(a.begin(), a.end());
  EXPECT_EQ(first_difference(host_view(a.data(), {2, 3}), host_view(narrow.data(), {2, 3})), "");
  EXPECT_EQ(first_difference(host_view(a.data(), {2, 3}), host_view(a.data(), {3, 2})),
            "the shapes are [2, 3] and [3, 2]");
}

}  // namespace
}  // namespace ringtrain
