// Compares AdamW over several steps with Algorithm 2 in double; decay separate from the moments; the clip factor; odd
// slices; moments in bfloat16.
#include "kernels/adamw.h"

#include "kernels/adamw_moments.h"
#include "tests/support/kernel_harness.h"

namespace ringtrain::testing {
namespace {

template <class R>
class AdamWTest : public ::testing::Test {};
TYPED_TEST_SUITE(AdamWTest, RealTypes);

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

/// Two steps with moments of type M.
template <class R, class M>
void expect_bits_of_elements() {
  const std::int64_t n = 70003;
  const auto w0 = random_vector<R>(n, 1), g = random_vector<R>(n, 2);
  const auto run = [&](Stream& stream, const std::vector<std::int64_t>& ends) {
    auto w = w0;
    std::vector<M> m(w.size()), v = m;
    for (const std::int64_t step : {1, 2}) {
      for (std::int64_t begin = 0; const std::int64_t end : ends) {
        const auto part = [&](auto& values) { return view_of(values).flat(begin, end); };
        const auto first = 4'294'950'000U + static_cast<std::uint64_t>(begin);
        update(stream, {part(w), part(m), part(v), part(g), {}, 0.1, first}, {0.1, 0.9, 0.95, 1e-8, step, 1});
        begin = end;
      }
    }
    return w;
  };
  expect_same_bits_for_any_workers([&](Stream& stream) { return run(stream, {n}); });
  CpuStream stream;
  EXPECT_EQ(run(stream, {1, 333, n}), run(stream, {n}));  // for any sharding of the state
}

TYPED_TEST(AdamWTest, BitsDependOnlyOnTheElement) {
  expect_bits_of_elements<TypeParam, TypeParam>();
  expect_bits_of_elements<float, BFloat16>();
}

// Moments that decay by a thousandth, which is less than half the distance of two bfloat16 numbers.
TEST(AdamWMoments, InBFloat16AreTheExactOnesOnAverage) {
  CpuStream stream;
  constexpr double n = 200'000, exact = 1.24875, distance = 0x1p-7;
  std::vector<float> w(200'000), g(w.size());
  std::vector<BFloat16> m(w.size(), BFloat16::rounded(1.25F)), v = m;
  update(stream, {view_of(w), view_of(m), view_of(v), view_of(g), {}, 0, 1}, {0.1, 0.999, 0.999, 1e-8, 1, 1});
  double first = 0, second = 0, both = 0;  // sums of errors, and of their products
  for (std::size_t i = 0; i < m.size(); ++i) {
    const double of_m = static_cast<double>(m[i].value()) - exact, of_v = static_cast<double>(v[i].value()) - exact;
    first += of_m;
    second += of_v;
    both += of_m * of_v;
  }
  const double deviation = 0.4 * distance / std::sqrt(n);  // of a mean, if 16% are rounded down
  for (const double sum : {first, second}) EXPECT_NEAR(sum / n, 0, 4 * deviation);
  EXPECT_NEAR(both / n, 0, 4 * distance * deviation) << "the same random bits round both";
}

TEST(AdamWMoments, AreRoundedUpAsOftenAsTheDroppedBitsAsk) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const std::uint32_t random : {0U, 1U, 0x8000U, 0xffffU}) {
    for (const float x : {infinity, -infinity, 0.0F, -0.0F, 1.5F, -0x1p-133F}) {  // all of them bfloat16 numbers
      EXPECT_EQ(rounded_at_random(x, random).bits, BFloat16::rounded(x).bits) << x;
    }
    for (const std::uint32_t dropped : {1U, 0x1234U, 0xffffU}) {
      const BFloat16 rounded = rounded_at_random(std::bit_cast<float>(0xbf800000U + dropped), random);
      EXPECT_EQ(rounded.bits, random + dropped > 0xffffU ? 0xbf81U : 0xbf80U);
    }
    EXPECT_TRUE(std::isnan(rounded_at_random(std::bit_cast<float>(0x7fffffffU), random).value()));
  }
}

TEST(AdamWGradients, InBFloat16AreTakenAsTheyAre) {
  const std::int64_t n = 70003;
  const auto w0 = random_vector<float>(n, 1), exact = random_vector<float>(n, 2);
  std::vector<BFloat16> narrow(exact.size());
  std::vector<float> wide(exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) wide[i] = (narrow[i] = BFloat16::rounded(exact[i])).value();
  const auto run = [&]<class M>(const auto& g, M) {
    CpuStream stream;
    auto w = w0;
    std::vector<M> m(w.size()), v = m;
    for (const std::int64_t step : {1, 2}) {
      update(stream, {view_of(w), view_of(m), view_of(v), view_of(g), {}, 0.1, 7}, {0.1, 0.9, 0.95, 1e-8, step, 0.3});
    }
    return w;
  };
  EXPECT_EQ(run(narrow, float()), run(wide, float()));
  EXPECT_EQ(run(narrow, BFloat16()), run(wide, BFloat16()));
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
}  // namespace ringtrain::testing
