// SwiGLU and GELU against their formulas in double, gradients against central differences, outputs over inputs, values
// far out on both sides, and bits that do not depend on threads or on where an element stands.
#include "kernels/activation.h"

#include "reference/operations.h"
#include "tests/support/kernel_harness.h"

namespace ringtrain {
namespace {

using namespace ringtrain::testing;
using Doubles = std::vector<double>;

using reference::gelu;
using reference::silu;

template <class R>
class ActivationTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ActivationTest, Types);

TYPED_TEST(ActivationTest, ForwardAgreesWithTheFormula) {
  using R = TypeParam;
  CpuStream stream;
  for (std::int64_t n : {0, 1, 3, 17, 257, 1000, 40001}) {
    auto gate = random_vector<R>(n, 1, 3), up = random_vector<R>(n, 2);
    Doubles expected_swiglu(gate.size()), expected_gelu(gate.size());
    for (std::size_t i = 0; i < gate.size(); ++i) {
      expected_swiglu[i] = silu(static_cast<double>(gate[i])) * static_cast<double>(up[i]);
      expected_gelu[i] = gelu(static_cast<double>(gate[i]));
    }
    auto y = random_vector<R>(n, 3);
    gelu_forward(stream, view_of(y), view_of(gate));
    EXPECT_LE(relative_difference(y, expected_gelu), tolerance<R>) << n;
    swiglu_forward(stream, view_of(y), view_of(gate), view_of(up));
    EXPECT_LE(relative_difference(y, expected_swiglu), tolerance<R>) << n;
    swiglu_forward(stream, view_of(up), view_of(gate), view_of(up));  // over its own input
    EXPECT_EQ(up, y) << n;
  }
}

TYPED_TEST(ActivationTest, StaysFiniteFarOut) {
  using R = TypeParam;
  CpuStream stream;
  const std::vector<R> x = {0, -R{0}, 30, -30, 90, -90, 800, -800, R(1e10), R(-1e10)}, one(x.size(), 1);
  std::vector<R> y(x.size()), dgate(x.size()), dup(x.size());
  swiglu_forward(stream, view_of(y), view_of(x), view_of(one));
  swiglu_backward(stream, view_of(dgate), view_of(dup), view_of(one), view_of(x), view_of(one));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = silu(static_cast<double>(x[i]));
    EXPECT_NEAR(static_cast<double>(y[i]), expected, tolerance<R> * std::abs(expected) + 1e-30);
    EXPECT_NEAR(static_cast<double>(dgate[i]), x[i] == 0 ? 0.5 : x[i] > 0 ? 1 : 0, 1e-11);
  }
  gelu_forward(stream, view_of(y), view_of(x));
  gelu_backward(stream, view_of(dgate), view_of(one), view_of(x));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], x[i] > 0 ? x[i] : 0);
    EXPECT_EQ(dgate[i], x[i] == 0 ? R(0.5) : x[i] > 0 ? 1 : 0) << x[i];
  }
}

TYPED_TEST(ActivationTest, GegluAndItsGradientsAgreeWithTheFormula) {
  using R = TypeParam;
  CpuStream stream;
  for (std::int64_t n : {0, 1, 17, 1000}) {
    const auto gate = random_vector<R>(n, 1, 3), up = random_vector<R>(n, 2), dy = random_vector<R>(n, 3);
    Doubles y_of, dgate_of, dup_of;
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const auto g = static_cast<double>(gate[i]), u = static_cast<double>(up[i]), d = static_cast<double>(dy[i]);
      y_of.push_back(gelu(g) * u);
      dgate_of.push_back(d * u * reference::gelu_derivative(g));
      dup_of.push_back(d * gelu(g));
    }
    auto y = random_vector<R>(n, 4);
    geglu_forward(stream, view_of(y), view_of(gate), view_of(up));
    EXPECT_LE(relative_difference(y, y_of), tolerance<R>) << n;
    auto over_gate = gate, over_up = up;
    geglu_backward(stream, view_of(over_gate), view_of(over_up), view_of(dy), view_of(over_gate), view_of(over_up));
    EXPECT_LE(relative_difference(over_gate, dgate_of), tolerance<R>) << n;
    EXPECT_LE(relative_difference(over_up, dup_of), tolerance<R>) << n;
  }
}

TEST(ActivationGradientTest, AgreesWithDifferences) {
  CpuStream stream;
  const std::int64_t n = 77;
  Doubles gate = random_vector<double>(n, 1, 2), up = random_vector<double>(n, 2);
  const Doubles dy = random_vector<double>(n, 3);
  const auto swiglu_loss = [&] {
    double sum = 0;
    for (std::size_t i = 0; i < gate.size(); ++i) sum += dy[i] * silu(gate[i]) * up[i];
    return sum;
  };
  const auto gelu_loss = [&] {
    double sum = 0;
    for (std::size_t i = 0; i < gate.size(); ++i) sum += dy[i] * gelu(gate[i]);
    return sum;
  };
  const Doubles dgate = numeric_gradient(gate, swiglu_loss), dup = numeric_gradient(up, swiglu_loss);
  const Doubles dx = numeric_gradient(gate, gelu_loss);
  Doubles over_x = gate, over_gate = gate, over_up = up;
  gelu_backward(stream, view_of(over_x), view_of(dy), view_of(over_x));
  EXPECT_LE(relative_difference(over_x, dx), 1e-8);
  swiglu_backward(stream, view_of(over_gate), view_of(over_up), view_of(dy), view_of(over_gate), view_of(over_up));
  EXPECT_LE(relative_difference(over_gate, dgate), 1e-8);
  EXPECT_LE(relative_difference(over_up, dup), 1e-8);
  std::vector<float> narrow_gate(gate.size()), narrow_up(gate.size());
  swiglu_backward(stream, view_of(narrow_gate), view_of(narrow_up), view_of(converted<float>(dy)),
                  view_of(converted<float>(gate)), view_of(converted<float>(up)));
  EXPECT_LE(relative_difference(narrow_gate, dgate), tolerance<float>);
  EXPECT_LE(relative_difference(narrow_up, dup), tolerance<float>);
}

TYPED_TEST(ActivationTest, BitsDependOnTheElementAlone) {
  using R = TypeParam;
  const std::int64_t n = 100003;
  const auto x = random_vector<R>(n, 1), dy = random_vector<R>(n, 2);
  const auto run = [&](Stream& stream) {
    std::vector<R> all(2 * n);
    gelu_forward(stream, host_view(all.data(), {n}), view_of(x));
    swiglu_backward(stream, host_view(all.data() + n, {n}), host_view(all.data(), {n}), view_of(dy), view_of(x),
                    host_view(all.data(), {n}));
    return all;
  };
  expect_same_bits_for_any_workers(run);
  CpuStream stream;
  std::vector<R> whole(x.size()), piece(5);
  gelu_forward(stream, view_of(whole), view_of(x));
  gelu_forward(stream, view_of(piece), view_of(x).flat(1003, 1008));
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(piece[i], whole[1003 + i]);
}

}  // namespace
}  // namespace ringtrain
