// Compares frequencies with numbers computed independently (from the formulas of the papers and of the published yarn
// code, in Python), and the rotation with complex multiplication; backward is forward's transpose; large positions.
#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <complex>

#include "tests/support/kernel_harness.h"

namespace ringtrain::testing {
namespace {

using Doubles = std::vector<double>;

RopeScalingConfig scaling_of(RopeType type, double factor, std::int64_t trained = 0) {
  RopeScalingConfig scaling;
  scaling.type = type;
  scaling.factor = factor;
  scaling.original_max_position_embeddings = trained;
  return scaling;
}

TEST(RopeFrequenciesTest, PlainLinearAndNtk) {
  const RopeFrequencies plain = rope_frequencies(16, 10000, {});
  const Doubles expected = {1,    0.31622776601683794,   0.1,   0.031622776601683794,
                            0.01, 0.0031622776601683794, 0.001, 0.00031622776601683794};
  EXPECT_LE(relative_difference(plain.inverse, expected), 1e-15);
  EXPECT_EQ(plain.magnitude, 1);
  const RopeFrequencies linear = rope_frequencies(16, 10000, scaling_of(RopeType::linear, 4));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(linear.inverse[i] / expected[i], 0.25, 1e-15);
  const RopeFrequencies ntk = rope_frequencies(16, 10000, scaling_of(RopeType::ntk, 4));
  const Doubles ntk_expected = {1.0,
                                0.25941281701492275,
                                0.0672950096316178,
                                0.017457188019584336,
                                0.004528618321319533,
                                0.0011747816359188909,
                                0.00030475341355111886,
                                7.905694150420948e-05};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(ntk.inverse[i] / ntk_expected[i], 1, 1e-14);
  EXPECT_EQ(rope_frequencies(2, 10000, scaling_of(RopeType::ntk, 4)).inverse, Doubles{1});
}

TEST(RopeFrequenciesTest, Yarn) {
  const RopeFrequencies small = rope_frequencies(16, 10000, scaling_of(RopeType::yarn, 4, 2048));
  const Doubles small_expected = {1.0,     0.31622776601683794,   0.1,     0.02569350598886808,
                                  0.00625, 0.0013834964763236657, 0.00025, 7.905694150420948e-05};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(small.inverse[i] / small_expected[i], 1, 1e-14) << i;
  EXPECT_NEAR(small.magnitude, 1.138629436111989, 1e-15);
  const RopeFrequencies large = rope_frequencies(32, 500000, scaling_of(RopeType::yarn, 8, 8192));
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

/// Frequencies at some pairs, to ten digits.
struct Anchor {
  std::size_t pair;
  double inverse;
};
void expect_anchors(const RopeFrequencies& frequencies, const std::vector<Anchor>& anchors) {
  for (const Anchor& anchor : anchors) {
    EXPECT_NEAR(frequencies.inverse[anchor.pair] / anchor.inverse, 1, 1e-9) << anchor.pair;
  }
}

TEST(RopeFrequenciesTest, Llama3AsInLlama31) {
  const RopeFrequencies frequencies = rope_frequencies(128, 5e5, scaling_of(RopeType::llama3, 8, 8192));
  expect_anchors(frequencies, {{0, 1.000000000e+00},
                               {16, 3.760603093e-02},
                               {28, 3.211445995e-03},
                               {32, 5.248461610e-04},
                               {36, 7.784655274e-05},
                               {48, 6.647869871e-06},
                               {63, 3.068925989e-07}});
  EXPECT_EQ(frequencies.magnitude, 1);
}

TEST(RopeFrequenciesTest, Llama3KeepsAndDividesWhereItsFactorsSay) {
  RopeScalingConfig scaling = scaling_of(RopeType::llama3, 8, 8192);
  const RopeFrequencies plain = rope_frequencies(128, 5e5, {});
  const auto kept = [&](double low, double high) {
    scaling.low_freq_factor = low;
    scaling.high_freq_factor = high;
    const RopeFrequencies frequencies = rope_frequencies(128, 5e5, scaling);
    std::size_t i = 0;
    while (frequencies.inverse[i] == plain.inverse[i]) ++i;
    EXPECT_NEAR(frequencies.inverse[63] * 8 / plain.inverse[63], 1, 1e-15);
    return i;
  };
  EXPECT_EQ(kept(1, 4), 29);  // 8192 / 4 = 2048 positions or less: pairs 0 to 28 of theta^(-i/64)
  EXPECT_EQ(kept(1, 64), 15);
  EXPECT_EQ(kept(0.5, 1.5), 34);
}

TEST(RopeFrequenciesTest, YarnAsInQwen) {
  const RopeFrequencies frequencies = rope_frequencies(128, 1e6, scaling_of(RopeType::yarn, 4, 32768));
  expect_anchors(frequencies, {{20, 1.333521432e-02},
                               {30, 1.064360981e-03},
                               {40, 4.445698525e-05},
                               {50, 5.133812566e-06},
                               {63, 3.102344402e-07}});
  EXPECT_NEAR(frequencies.magnitude, 1.138629436112, 1e-12);
}

TEST(RopeFrequenciesTest, YarnWithoutRoundingAsInGptOss) {
  RopeScalingConfig scaling = scaling_of(RopeType::yarn, 32, 4096);
  scaling.truncate = false;
  const RopeFrequencies frequencies = rope_frequencies(64, 150000, scaling);
  EXPECT_NEAR(frequencies.magnitude, 1.346573590280, 1e-12);
  const RopeFrequencies plain = rope_frequencies(64, 150000, {});
  const double low = 8.0927791155124, high = 17.3980245015886;  // of the ramp, which contains pairs 9 to 17
  for (std::size_t i = 0; i < 32; ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double expected = plain.inverse[i] * (interpolated / 32 + 1 - interpolated);
    EXPECT_NEAR(frequencies.inverse[i] / expected, 1, 1e-12) << i;
  }
}

TEST(RopeFrequenciesTest, YarnsOtherKeys) {
  RopeScalingConfig scaling = scaling_of(RopeType::yarn, 40, 4096);
  scaling.mscale = 0.707;
  EXPECT_NEAR(rope_frequencies(64, 1e4, scaling).magnitude, 1 + 0.1 * std::log(40.0), 1e-15);  // both or neither
  scaling.mscale_all_dim = 1.1;
  EXPECT_NEAR(rope_frequencies(64, 1e4, scaling).magnitude, 0.8968734092501967, 1e-14);
  scaling.attention_factor = 1.75;
  EXPECT_EQ(rope_frequencies(64, 1e4, scaling).magnitude, 1.75);
  // beta 16 and 2 over 4096: pairs 64 ln(4096 / (2 pi beta)) / (2 ln 1e4) = 12.88 and 20.11, so the ramp is [12, 21].
  scaling.beta_fast = 16;
  scaling.beta_slow = 2;
  const RopeFrequencies plain = rope_frequencies(64, 1e4, {}), scaled = rope_frequencies(64, 1e4, scaling);
  EXPECT_EQ(scaled.inverse[12], plain.inverse[12]);
  EXPECT_NEAR(scaled.inverse[15] / plain.inverse[15], 2.0 / 3 + 1.0 / 3 / 40, 1e-14);
  EXPECT_NEAR(scaled.inverse[21] / plain.inverse[21], 1.0 / 40, 1e-15);
}

TEST(RopeFrequenciesTest, LongRopeHasASetForShortAndOneForLong) {
  RopeScalingConfig scaling = scaling_of(RopeType::longrope, 32, 4096);
  for (int i = 0; i < 4; ++i) {
    scaling.short_factor.push_back(1 + 0.125 * i);
    scaling.long_factor.push_back(2 + 3 * i);
  }
  for (const std::int64_t length : {1, 4096, 4097, 131072}) {
    const RopeFrequencies frequencies = rope_frequencies(8, 1e4, scaling, length);
    for (int i = 0; i < 4; ++i) {
      const double divisor = length > 4096 ? 2 + 3 * i : 1 + 0.125 * i;
      EXPECT_NEAR(frequencies.inverse[i] * divisor * std::pow(10.0, i), 1, 1e-14);
    }
    EXPECT_NEAR(frequencies.magnitude, 1.190238071424, 1e-12);  // as in Phi-3
  }
  scaling.attention_factor = 1.5;
  EXPECT_EQ(rope_frequencies(8, 1e4, scaling).magnitude, 1.5);
}

template <class R>
class RopeTest : public ::testing::Test {};
TYPED_TEST_SUITE(RopeTest, RealTypes);

TYPED_TEST(RopeTest, TurnsPairsByTheirAngles) {
  using R = TypeParam;
  CpuStream stream;
  for (std::int64_t T : {0, 1, 3, 257}) {
    for (std::int64_t D : {2, 6, 34, 64}) {
      const std::int64_t H = 3, half = D / 2;
      auto positions = random_integers(T, 1, 1 << 20);
      RopeFrequencies frequencies = rope_frequencies(D, 10000, {});
      frequencies.magnitude = 1.25;
      std::vector<R> table(T * D);
      rope_table(stream, view_of(table, {T, D}), view_of(positions), frequencies);
      const auto x0 = random_vector<R>(T * H * D, 2);
      auto x = x0;
      rope_forward(stream, view_of(x, {T, H, D}), view_of(table, {T, D}));
      Doubles expected(x.size());
      for (std::int64_t row = 0; row < T * H; ++row) {
        for (std::int64_t i = 0; i < half; ++i) {
          const auto low = static_cast<std::size_t>(row * D + i), high = low + static_cast<std::size_t>(half);
          const double angle =
              positions[row / H] * std::pow(10000.0, -2 * static_cast<double>(i) / static_cast<double>(D));
          const std::complex<double> turned =
              std::complex<double>(static_cast<double>(x0[low]), static_cast<double>(x0[high])) *
              std::polar(1.25, angle);
          expected[low] = turned.real();
          expected[high] = turned.imag();
        }
      }
      // An angle of 2^20 radians has an error of 2^20 * 1e-16 in double; the table's angles are no worse in float.
      EXPECT_LE(relative_difference(x, expected), sizeof(R) == 8 ? 1e-9 : 1e-6) << T << " x " << D;
      rope_backward(stream, view_of(x, {T, H, D}), view_of(x, {T, H, D}), view_of(table, {T, D}));
      for (std::size_t i = 0; i < x.size(); ++i) {  // the transpose rotates back and scales again
        ASSERT_NEAR(static_cast<double>(x[i]), 1.25 * 1.25 * static_cast<double>(x0[i]), tolerance<R> * 10);
      }
    }
  }
}

TYPED_TEST(RopeTest, BitsDoNotDependOnThreads) {
  using R = TypeParam;
  const std::int64_t T = 500, H = 5, D = 64;
  const auto positions = random_integers(T, 1, 10000);
  const auto x0 = random_vector<R>(T * H * D, 2);
  expect_same_bits_for_any_workers([&](Stream& stream) {
    std::vector<R> table(T * D), x = x0;
    rope_table(stream, view_of(table, {T, D}), view_of(positions), rope_frequencies(D, 10000, {}));
    rope_forward(stream, view_of(x, {T, H, D}), view_of(table, {T, D}));
    return x;
  });
}

}  // namespace
}  // namespace ringtrain::testing
