// Compares activations and their gradients with the formulas of the reference in double; also outputs in the memory of
// inputs, extreme values, and bits that do not depend on threads or on an element's position.
#include "kernels/activation.h"

#include "reference/operations.h"
#include "tests/support/kernel_harness.h"

namespace ringtrain::testing {
namespace {

using Doubles = std::vector<double>;

using reference::gelu;
using reference::silu;

template <class R>
class ActivationTest : public ::testing::Test {};
TYPED_TEST_SUITE(ActivationTest, RealTypes);

using Formula = double (*)(double);

TYPED_TEST(ActivationTest, AgreesWithTheFormulas) {
  using R = TypeParam;
  CpuStream stream;
  for (std::int64_t n : {0, 1, 3, 17, 257, 1000, 40001}) {
    const auto gate = random_vector<R>(n, 1, 3), up = random_vector<R>(n, 2), dy = random_vector<R>(n, 3);
    for (const Activation activation : {Activation::silu, Activation::gelu}) {
      for (const bool gated : {true, false}) {
        const bool is_gelu = activation == Activation::gelu;
        const Formula value = is_gelu ? gelu : silu;
        const Formula slope = is_gelu ? reference::gelu_derivative : reference::silu_derivative;
        const auto if_gated = [&](std::vector<R>& x) { return gated ? view_of(x) : TensorView{}; };
        Doubles y_of, dgate_of, dup_of;
        for (std::size_t i = 0; i < gate.size(); ++i) {
          const auto g = static_cast<double>(gate[i]), u = gated ? static_cast<double>(up[i]) : 1;
          const auto d = static_cast<double>(dy[i]);
          y_of.push_back(value(g) * u);
          dgate_of.push_back(d * u * slope(g));
          dup_of.push_back(d * value(g));
        }
        auto y = random_vector<R>(n, 4), over_gate = gate, over_up = up, over_dy = dy;
        activation_forward(stream, activation, view_of(y), view_of(gate), if_gated(over_up));
        EXPECT_LE(relative_difference(y, y_of), tolerance<R>) << n;
        activation_forward(stream, activation, view_of(over_gate), view_of(over_gate), if_gated(over_up));
        EXPECT_EQ(over_gate, y) << n;
        over_gate = gate;
        activation_backward(stream, activation, view_of(over_gate), if_gated(over_up), view_of(over_dy),
                            view_of(over_gate), if_gated(over_up), view_of(over_dy));
        EXPECT_LE(relative_difference(over_gate, dgate_of), tolerance<R>) << n;
        EXPECT_TRUE(!gated || relative_difference(over_up, dup_of) <= tolerance<R>) << n;
        EXPECT_EQ(over_dy, y) << n << ": backward makes it to the same bits";
        std::vector<R> dgate(gate.size()), dup(up.size()), up_again = up;
        activation_backward(stream, activation, view_of(dgate), if_gated(dup), view_of(dy), view_of(gate),
                            if_gated(up_again));
        EXPECT_EQ(dgate, over_gate) << n;
        EXPECT_TRUE(!gated || dup == over_up) << n;
      }
    }
  }
}

TYPED_TEST(ActivationTest, StaysFiniteFarOut) {
  using R = TypeParam;
  CpuStream stream;
  const std::vector<R> x = {0, -R{0}, 30, -30, 90, -90, 800, -800, R(1e10), R(-1e10)}, one(x.size(), 1);
  std::vector<R> y(x.size()), dgate(x.size()), dup(x.size());
  activation_forward(stream, Activation::silu, view_of(y), view_of(x), view_of(one));
  activation_backward(stream, Activation::silu, view_of(dgate), view_of(dup), view_of(one), view_of(x), view_of(one));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = silu(static_cast<double>(x[i]));
    EXPECT_NEAR(static_cast<double>(y[i]), expected, tolerance<R> * std::abs(expected) + 1e-30);
    EXPECT_NEAR(static_cast<double>(dgate[i]), x[i] == 0 ? 0.5 : x[i] > 0 ? 1 : 0, 1e-11);
  }
  activation_forward(stream, Activation::gelu, view_of(y), view_of(x), {});
  activation_backward(stream, Activation::gelu, view_of(dgate), {}, view_of(one), view_of(x), {});
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
    const TensorView first = host_view(all.data(), {n}), second = host_view(all.data() + n, {n});
    activation_forward(stream, Activation::gelu, first, view_of(x), {});
    activation_backward(stream, Activation::silu, second, first, view_of(dy), view_of(x), first);
    return all;
  };
  expect_same_bits_for_any_workers(run);
  CpuStream stream;
  std::vector<R> whole(x.size()), piece(5);
  activation_forward(stream, Activation::gelu, view_of(whole), view_of(x), {});
  activation_forward(stream, Activation::gelu, view_of(piece), view_of(x).flat(1003, 1008), {});
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(piece[i], whole[1003 + i]);
}

}  // namespace
}  // namespace ringtrain::testing
