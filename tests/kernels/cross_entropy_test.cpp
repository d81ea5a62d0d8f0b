// Compares cross-entropy and its gradient with the reference in double: labels and weights that do not count, logits of
// any size, a large vocabulary, and NaN that must not be hidden.
#include "kernels/cross_entropy.h"

#include <fmt/format.h>

#include <cstdint>

#include "reference/operations.h"
#include "tests/support/error_of.h"
#include "tests/support/kernel_harness.h"

namespace ringtrain::testing {
namespace {

using Doubles = std::vector<double>;

/// Returns the reference's nll of row t, 0 without a label; *gradient (may be null): the gradient of this nll.
double reference_nll(const Doubles& logits, std::size_t V, std::size_t t, std::int32_t label,
                     Doubles* gradient = nullptr) {
  Doubles row(logits.data() + t * V, logits.data() + (t + 1) * V);
  if (label < 0) return 0;
  const double nll = reference::cross_entropy(row, label);
  if (gradient != nullptr) *gradient = std::move(row);
  return nll;
}

template <class R>
struct Rows {
  std::int64_t n, V;
  std::vector<R> logits, weights;
  std::vector<std::int32_t> labels;
  Doubles nll;

  Rows(std::int64_t tokens, std::int64_t vocabulary, double size = 1) : n(tokens), V(vocabulary) {
    logits = random_vector<R>(n * V, 1, size);
    weights = random_vector<R>(n, 2);
    labels = random_integers(n, 3, static_cast<std::uint64_t>(V));
    for (std::size_t t = 0; t < labels.size(); t += 3) labels[t] = t % 2 == 0 ? -1 : labels[t];
    for (R& weight : weights) weight = std::abs(weight);
    for (std::size_t t = 1; t < weights.size(); t += 4) weights[t] = 0;
    nll = random_vector<double>(n, 4);
  }
  void run(Stream& stream, double denominator, bool gradient, double softcap = 0) {
    cross_entropy(stream, view_of(logits, {n, V}), view_of(nll), view_of(labels), view_of(weights), denominator,
                  gradient, softcap);
  }
};

template <class R>
class CrossEntropyTest : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropyTest, RealTypes);

TYPED_TEST(CrossEntropyTest, ALabelThatIsNoColumnIsAnErrorBeforeAnythingIsTouched) {
  CpuStream stream;
  for (const std::int32_t bad : {7, -2, INT32_MAX, INT32_MIN}) {
    Rows<TypeParam> rows(4, 7);
    rows.labels.back() = bad;
    const auto before = rows.logits;
    error_of(ExitCode::internal, [&] { rows.run(stream, 1, true); });
    EXPECT_EQ(rows.logits, before);
  }
}

/// Compares losses and gradients, with and without a softcap, with the reference.
template <class R>
void expect_agreement(std::int64_t n, std::int64_t V, double size, double softcap) {
  SCOPED_TRACE(fmt::format("{} x {} of size {}, softcap {}", n, V, size, softcap));
  CpuStream stream;
  Rows<R> rows(n, V, size);
  Doubles wide = converted<double>(rows.logits);
  if (softcap > 0) {
    reference::softcap(wide, softcap);
    cap_logits(stream, view_of(rows.logits), softcap);
    EXPECT_LE(relative_difference(rows.logits, wide), sizeof(R) == 8 ? 1e-15 : 4e-7);
  }
  const auto before = rows.logits;
  rows.run(stream, 7.5, false, softcap);
  EXPECT_EQ(rows.logits, before);
  const Doubles without = rows.nll;
  rows.run(stream, 7.5, true, softcap);
  EXPECT_EQ(rows.nll, without);
  Doubles nll(rows.nll.size()), gradient(wide.size());
  for (std::size_t t = 0; t < nll.size(); ++t) {
    Doubles of_row;
    nll[t] = reference_nll(wide, static_cast<std::size_t>(V), t, rows.labels[t], &of_row);
    for (std::size_t v = 0; v < of_row.size(); ++v) {
      const std::size_t i = t * static_cast<std::size_t>(V) + v;
      const double slope = softcap > 0 ? reference::softcap_derivative(wide[i], softcap) : 1;
      gradient[i] = of_row[v] * slope * static_cast<double>(rows.weights[t]) / 7.5;
    }
  }
  EXPECT_LE(relative_difference(rows.nll, nll), sizeof(R) == 8 ? 1e-14 : 1e-6);
  const double capped = sizeof(R) == 8 ? 1e-12 : 1e-5;
  EXPECT_LE(relative_difference(rows.logits, gradient), softcap > 0 ? capped : tolerance<R>);
}

TYPED_TEST(CrossEntropyTest, AgreesWithLogSoftmax) {
  for (std::int64_t n : {0, 1, 17, 100}) {
    for (std::int64_t V : {1, 3, 17, 257, 1000, 5003}) {
      for (double size : {0.0, 1.0, 30.0, 1e4}) expect_agreement<TypeParam>(n, V, size, 0);
    }
  }
}

TYPED_TEST(CrossEntropyTest, UnderASoftcapAgreesWithThePlainFormula) {
  for (const double softcap : {0.5, 3.0, 30.0}) {
    for (std::int64_t V : {1, 17, 1000}) {
      for (double size : {1e-3, 1.0, 30.0}) expect_agreement<TypeParam>(21, V, size, softcap);
    }
  }
}

// Exponentials of tiny logits differ in their last bits, which a long sum of them in float would round in the same
// direction: 15 units of rounding with 125 in a sum.
TEST(CrossEntropyRoundingTest, NearlyEqualExponentialsAreNotRoundedAlike) {
  CpuStream stream;
  for (const std::int64_t V : {257, 2000, 32000}) {
    for (const double size : {1e-8, 1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 1e-3, 1e-2}) {
      Rows<float> rows(40, V, size);
      const Doubles wide = converted<double>(rows.logits);
      rows.run(stream, 1, false);
      for (std::size_t t = 0; t < rows.nll.size(); ++t) {
        const double nll = reference_nll(wide, static_cast<std::size_t>(V), t, rows.labels[t]);
        EXPECT_LE(std::abs(rows.nll[t] - nll), 2 * 0x1p-24) << V << " logits of size " << size;
      }
    }
  }
}

TYPED_TEST(CrossEntropyTest, LargeVocabularyOfEqualLogits) {
  CpuStream stream;
  const std::int64_t V = 131072;
  Rows<TypeParam> rows(4, V, 0);
  for (auto& logit : rows.logits) logit = 5;
  rows.labels = {0, 1, -1, static_cast<std::int32_t>(V - 1)};
  rows.run(stream, 1, true);
  for (std::size_t t : {0, 1, 3}) EXPECT_NEAR(rows.nll[t], std::log(131072.0), 1e-12);
  EXPECT_EQ(rows.nll[2], 0);
}

TYPED_TEST(CrossEntropyTest, HidesNoNaNButIgnoresRowsThatDoNotCount) {
  CpuStream stream;
  Rows<TypeParam> rows(3, 50);
  for (auto& logit : rows.logits) logit = std::numeric_limits<TypeParam>::quiet_NaN();
  rows.labels = {4, -1, 4};
  rows.weights = {1, 1, 0};
  rows.run(stream, 2, true);
  EXPECT_TRUE(std::isnan(rows.nll[0]) && std::isnan(rows.logits[0]));
  EXPECT_EQ(rows.nll[1], 0);
  for (std::size_t i = 50; i < 150; ++i) EXPECT_EQ(rows.logits[i], 0);
}

TYPED_TEST(CrossEntropyTest, BitsDoNotDependOnThreads) {
  expect_same_bits_for_any_workers([](Stream& stream) {
    Rows<TypeParam> rows(100, 1003);
    rows.run(stream, 7, true);
    return rows.logits;
  });
}

TYPED_TEST(CrossEntropyTest, WeightedSum) {
  CpuStream stream;
  for (std::int64_t n : {0, 1, 3, 1000, 10007}) {
    Rows<TypeParam> rows(n, 5);
    double expected = 0, result = 0.25;
    for (std::size_t t = 0; t < rows.nll.size(); ++t) {
      if (rows.labels[t] >= 0) expected += rows.nll[t] * static_cast<double>(rows.weights[t]);
    }
    for (const auto& [add, start] : {std::pair{true, 0.25}, std::pair{false, 0.0}}) {
      weighted_sum(stream, host_view(&result, {1}), view_of(rows.nll), view_of(rows.weights), view_of(rows.labels),
                   add);
      EXPECT_NEAR(result, start + expected, 1e-10) << n;
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
