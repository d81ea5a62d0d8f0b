// Compares AdamW over several steps with Algorithm 2 in double; decay separate from the moments; the clip factor; odd
// slices.
#include "kernels/adamw.h"

#include "tests/support/kernel_harness.h"

namespace ringtrain {
namespace {

using namespace ringtrain::testing;

template <class R>
class AdamWTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AdamWTest, Types);

void update(Stream& stream, const AdamWSlice& slice, const AdamW& hyper) {
  adamw_update(stream, {&slice, 1}, hyper);
}

TYPED_TEST(AdamWTest, AgreesWithTheAlgorithm) {
  using R = TypeParam;
  CpuStream stream;
  for (std::int64_t n : {0, 1, 3, 17, 257, 1000, 40001}) {
    auto w = random_vector<R>(n, 1), m = std::vector<R>(w.size()), v = m;
    auto w_ref = converted<double>(w), m_ref = std::vector<double>(w.size()), v_ref = m_ref;
    for (std::int64_t step = 1; step <= 3; ++step) {
      const auto g = random_vector<R>(n, 10 + static_cast<std::uint64_t>(step), 0.1);
      const double lr = 0.01 * static_cast<double>(step);
      update(stream, {view_of(w), view_of(m), view_of(v), view_of(g), {}, 0.1}, {lr, 0.9, 0.95, 1e-8, step, 0.5});
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double gradient = 0.5 * static_cast<double>(g[i]);
        m_ref[i] = 0.9 * m_ref[i] + 0.1 * gradient;
        v_ref[i] = 0.95 * v_ref[i] + 0.05 * gradient * gradient;
        const double m_hat = m_ref[i] / (1 - std::pow(0.9, step)), v_hat = v_ref[i] / (1 - std::pow(0.95, step));
        w_ref[i] -= lr * (m_hat / (std::sqrt(v_hat) + 1e-8) + 0.1 * w_ref[i]);
      }
    }
    EXPECT_LE(relative_difference(w, w_ref), tolerance<R>) << n;
    EXPECT_LE(relative_difference(m, m_ref), tolerance<R>) << n;
    EXPECT_LE(relative_difference(v, v_ref), tolerance<R>) << n;
  }
}

TYPED_TEST(AdamWTest, BitsDependOnlyOnTheElement) {
  using R = TypeParam;
  const std::int64_t n = 70003;
  const auto w0 = random_vector<R>(n, 1), g = random_vector<R>(n, 2);
  const AdamW hyper{0.1, 0.9, 0.95, 1e-8, 5, 1};
  const auto run = [&](Stream& stream) {
    auto w = w0, m = g;
    auto v = std::vector<R>(w.size(), R(0.5));
    update(stream, {view_of(w), view_of(m), view_of(v), view_of(g), {}, 0.1}, hyper);
    return w;
  };
  expect_same_bits_for_any_workers(run);
  CpuStream stream;
  const auto whole = run(stream);
  auto w = w0, m = g;
  auto v = std::vector<R>(w.size(), R(0.5));
  for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{1, 333}, std::pair{333, 70003}}) {
    update(stream,
           {view_of(w).flat(begin, end),
            view_of(m).flat(begin, end),
            view_of(v).flat(begin, end),
            view_of(g).flat(begin, end),
            {},
            0.1},
           hyper);
  }
  EXPECT_EQ(w, whole);  // for any sharding of the state
}

TEST(AdamWDecayTest, IsDecoupled) {
  CpuStream stream;
  std::vector<double> w = {2, -3}, m = {0, 0}, v = {0, 0}, g = {0, 0};
  update(stream, {view_of(w), view_of(m), view_of(v), view_of(g), {}, 0.5}, {0.1, 0.9, 0.95, 1e-8, 1, 1});
  EXPECT_NEAR(w[0], 2 * 0.95, 1e-15);
  EXPECT_NEAR(w[1], -3 * 0.95, 1e-15);
  EXPECT_EQ(m[0], 0);
}

}  // namespace
}  // namespace ringtrain
