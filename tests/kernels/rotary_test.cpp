// Frequencies against numbers computed apart from this code (from the formulas of the papers and of the published
// yarn code, in Python); the rotation against complex multiplication; backward as forward's transpose; far positions.
#include "kernels/rotary.h"

#include <complex>

#include "tests/support/kernel_harness.h"

namespace ringtrain {
namespace {

using namespace ringtrain::testing;
using Doubles = std::vector<double>;

TEST(RotaryFrequenciesTest, PlainLinearAndNtk) {
  const RotaryFrequencies plain = rotary_frequencies(16, 10000, {});
  const Doubles expected = {1,    0.31622776601683794,   0.1,   0.031622776601683794,
                            0.01, 0.0031622776601683794, 0.001, 0.00031622776601683794};
  EXPECT_LE(relative_difference(plain.inverse, expected), 1e-15);
  EXPECT_EQ(plain.magnitude, 1);
  const RotaryFrequencies linear = rotary_frequencies(16, 10000, {RotaryScalingType::linear, 4});
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(linear.inverse[i] / expected[i], 0.25, 1e-15);
  const RotaryFrequencies ntk = rotary_frequencies(16, 10000, {RotaryScalingType::ntk, 4});
  const Doubles ntk_expected = {1.0,
                                0.25941281701492275,
                                0.0672950096316178,
                                0.017457188019584336,
                                0.004528618321319533,
                                0.0011747816359188909,
                                0.00030475341355111886,
                                7.905694150420948e-05};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(ntk.inverse[i] / ntk_expected[i], 1, 1e-14);
  EXPECT_EQ(rotary_frequencies(2, 10000, {RotaryScalingType::ntk, 4}).inverse, Doubles{1});
}

TEST(RotaryFrequenciesTest, Yarn) {
  const RotaryFrequencies small = rotary_frequencies(16, 10000, {RotaryScalingType::yarn, 4, 2048});
  const Doubles small_expected = {1.0,     0.31622776601683794,   0.1,     0.02569350598886808,
                                  0.00625, 0.0013834964763236657, 0.00025, 7.905694150420948e-05};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(small.inverse[i] / small_expected[i], 1, 1e-14) << i;
  EXPECT_NEAR(small.magnitude, 1.138629436111989, 1e-15);
  const RotaryFrequencies large = rotary_frequencies(32, 500000, {RotaryScalingType::yarn, 8, 8192});
  const Doubles large_expected = {1.0,
                                  0.44036660267178046,
                                  0.19392274474868576,
                                  0.08539710028576561,
                                  0.03760603093086393,
                                  0.01366236306682042,
                                  0.00474023207919112,
                                  0.0015254368475074809,
                                  0.00042426406871192844,
                                  7.78465527393245e-05,
                                  3.428102195952591e-05,
                                  1.509621717643313e-05,
                                  6.647869871181236e-06,
                                  2.9274998701761677e-06,
                                  1.2891731721515574e-06,
                                  5.677088100759837e-07};
  for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(large.inverse[i] / large_expected[i], 1, 1e-13) << i;
  EXPECT_NEAR(large.magnitude, 1.2079441541679836, 1e-15);
}

template <class R>
class RotaryTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RotaryTest, Types);

TYPED_TEST(RotaryTest, TurnsPairsByTheirAngles) {
  using R = TypeParam;
  CpuStream stream;
  for (std::int64_t T : {0, 1, 3, 257}) {
    for (std::int64_t D : {2, 6, 34, 64}) {
      const std::int64_t H = 3, half = D / 2;
      auto positions = random_integers(T, 1, 1 << 20);
      RotaryFrequencies frequencies = rotary_frequencies(D, 10000, {});
      frequencies.magnitude = 1.25;
      std::vector<R> table(static_cast<std::size_t>(T * D));
      rotary_table(stream, view_of(table, {T, D}), view_of(positions), frequencies);
      const auto x0 = random_vector<R>(T * H * D, 2);
      auto x = x0;
      rotary_forward(stream, view_of(x, {T, H, D}), view_of(table, {T, D}));
      Doubles expected(x.size());
      for (std::int64_t row = 0; row < T * H; ++row) {
        for (std::int64_t i = 0; i < half; ++i) {
          const auto low = static_cast<std::size_t>(row * D + i), high = low + static_cast<std::size_t>(half);
          const double angle = positions[static_cast<std::size_t>(row / H)] *
                               std::pow(10000.0, -2 * static_cast<double>(i) / static_cast<double>(D));
          const std::complex<double> turned =
              std::complex<double>(static_cast<double>(x0[low]), static_cast<double>(x0[high])) *
              std::polar(1.25, angle);
          expected[low] = turned.real(), expected[high] = turned.imag();
        }
      }
      // An angle of 2^20 radians has an error of 2^20 * 1e-16 in double; the table's angles are no worse in float.
      EXPECT_LE(relative_difference(x, expected), sizeof(R) == 8 ? 1e-9 : 1e-6) << T << " x " << D;
      rotary_backward(stream, view_of(x, {T, H, D}), view_of(x, {T, H, D}), view_of(table, {T, D}));
      for (std::size_t i = 0; i < x.size(); ++i) {  // the transpose turns back and scales once more
        ASSERT_NEAR(static_cast<double>(x[i]), 1.25 * 1.25 * static_cast<double>(x0[i]), tolerance<R> * 10);
      }
    }
  }
}

TYPED_TEST(RotaryTest, BitsDoNotDependOnThreads) {
  using R = TypeParam;
  const std::int64_t T = 500, H = 5, D = 64;
  const auto positions = random_integers(T, 1, 10000);
  const auto x0 = random_vector<R>(T * H * D, 2);
  expect_same_bits_for_any_workers([&](Stream& stream) {
    std::vector<R> table(static_cast<std::size_t>(T * D)), x = x0;
    rotary_table(stream, view_of(table, {T, D}), view_of(positions), rotary_frequencies(D, 10000, {}));
    rotary_forward(stream, view_of(x, {T, H, D}), view_of(table, {T, D}));
    return x;
  });
}

}  // namespace
}  // namespace ringtrain
