// Compares SwiGLU, GEGLU, and GELU and their gradients with the reference's formulas in double; also outputs over
// inputs, extreme values on both sides, and bits that do not depend on threads or on an element's position.
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

using Formula = double (*)(double);

TYPED_TEST(ActivationTest, AgreesWithTheFormulas) {
  using R = TypeParam;
  CpuStream stream;
  for (std::int64_t n : {0, 1, 3, 17, 257, 1000, 40001}) {
    const auto gate = random_vector<R>(n, 1, 3), up = random_vector<R>(n, 2), dy = random_vector<R>(n, 3);
    const auto check = [&](const auto& forward, const auto& backward, Formula value, Formula slope, bool gated) {
      Doubles y_of, dgate_of, dup_of;
      for (std::size_t i = 0; i < gate.size(); ++i) {
        const auto g = static_cast<double>(gate[i]), u = gated ? static_cast<double>(up[i]) : 1;
        const auto d = static_cast<double>(dy[i]);
        y_of.push_back(value(g) * u);
        dgate_of.push_back(d * u * slope(g));
        dup_of.push_back(d * value(g));
      }
      auto y = random_vector<R>(n, 4), over_gate = gate, over_up = up;
      forward(view_of(y), view_of(gate), view_of(up));
      EXPECT_LE(relative_difference(y, y_of), tolerance<R>) << n;
      forward(view_of(over_up), view_of(gate), view_of(over_up));  // over its own input
      EXPECT_TRUE(!gated || over_up == y) << n;
      over_up = up;
      backward(view_of(over_gate), view_of(over_up), view_of(dy), view_of(over_gate), view_of(over_up));
      EXPECT_LE(relative_difference(over_gate, dgate_of), tolerance<R>) << n;
      EXPECT_TRUE(!gated || relative_difference(over_up, dup_of) <= tolerance<R>) << n;
      std::vector<R> dgate(gate.size()), dup(up.size());
      backward(view_of(dgate), view_of(dup), view_of(dy), view_of(gate), view_of(up));
      EXPECT_EQ(dgate, over_gate) << n;
    };
    check([&](auto... x) { swiglu_forward(stream, x...); }, [&](auto... x) { swiglu_backward(stream, x...); }, silu,
          reference::silu_derivative, true);
    check([&](auto... x) { geglu_forward(stream, x...); }, [&](auto... x) { geglu_backward(stream, x...); }, gelu,
          reference::gelu_derivative, true);
    check([&](auto y, auto x, auto) { gelu_forward(stream, y, x); },
          [&](auto dx, auto, auto d, auto x, auto) { gelu_backward(stream, dx, d, x); }, gelu,
          reference::gelu_derivative, false);
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

TYPED_TEST(ActivationTest, BitsDependOnlyOnTheElement) {
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
