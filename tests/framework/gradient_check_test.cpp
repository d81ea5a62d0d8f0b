// The gradient check accepts a correct gradient, rejects a wrong one, and leaves x unchanged.
#include "framework/checks/gradient_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "framework/error.h"
#include "tests/support/error_of.h"

namespace ringtrain {
namespace {

std::vector<double> some_numbers(std::size_t n) {
  std::vector<double> x;
  for (std::size_t i = 0; i < n; ++i) x.push_back(std::sin(static_cast<double>(3 * i + 1)) * 4);
  return x;
}

double sum_of_cubes(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value * value;
  return sum;
}

TEST(GradientCheckTest, ARightGradientIsRightAndXStays) {
  std::vector<double> x = some_numbers(30), gradient;
  for (const double value : x) gradient.push_back(3 * value * value);
  const std::vector<double> before = x;
  const auto check = [&](const GradientCheckOptions& options) {
    return check_gradient([&] { return sum_of_cubes(x); }, host_view(x.data(), {5, 6}),
                          host_view(gradient.data(), {5, 6}), options);
  };
  EXPECT_LT(check({}).error, 1e-8);
  EXPECT_EQ(check({}).looked_at, 30);
  EXPECT_EQ(check({.most = 7}).looked_at, 7);
  EXPECT_EQ(x, before);
}

TEST(GradientCheckTest, AWrongElementIsNamed) {
  std::vector<double> x = some_numbers(12), gradient;
  for (const double value : x) gradient.push_back(3 * value * value);
  gradient[7] += 0.5;
  const auto check = [&] {
    return check_gradient([&] { return sum_of_cubes(x); }, host_view(x.data(), {12}), host_view(gradient.data(), {12}));
  };
  EXPECT_EQ(check().element, 7);
  EXPECT_GT(check().error, 1e-3);
  EXPECT_NEAR(check().gradient - check().difference, 0.5, 1e-6);
  gradient[3] = NAN;
  EXPECT_EQ(check().element, 3);
  EXPECT_TRUE(std::isnan(check().error));
}

TEST(GradientCheckTest, ARankThatVariesNothingCallsTheLossAsOften) {
  std::vector<double> x = some_numbers(4);
  int calls = 0;
  const auto loss = [&] { return static_cast<void>(++calls), sum_of_cubes(x); };
  check_gradient(loss, host_view(x.data(), {4}), host_view(x.data(), {4}), {.varies = false});
  EXPECT_EQ(calls, 8);
}

TEST(GradientCheckTest, OtherTensorsAreRefusedWithTheirNames) {
  std::vector<float> x(4);
  std::vector<double> gradient(4);
  testing::expect_error(ExitCode::usage, "x is float32 [4] on cpu, and its gradient is float64 [2, 2]", [&] {
    check_gradient([] { return 0.0; }, host_view(x.data(), {4}), host_view(gradient.data(), {2, 2}));
  });
}

}  // namespace
}  // namespace ringtrain
