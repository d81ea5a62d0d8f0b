// Compares cross-entropy on the GPU with the CPU's in double: rows that begin anywhere, vocabularies shorter than a
// pack and longer than a block takes at a time, labels that do not count, logits of any size, and the losses' weighted
// sum.
#include "kernels/cross_entropy.h"

#include "tests/support/cuda_harness.h"

namespace ringtrain::testing {
namespace {

class GpuCrossEntropyTest : public GpuKernelTest {
 protected:
  void expect_agreement(DType dtype, std::int64_t n, std::int64_t V, double stddev, std::int64_t skip,
                        double offset = 0) {
    forget();
    const std::string what = fmt::format("{} x {} of {}, stddev {}", n, V, name_of(dtype), stddev);
    std::vector<double> numbers = random_vector<double>(n * V, 1, stddev);
    for (double& x : numbers) x += offset;
    const Both logits = values(numbers, {n, V}, dtype, skip), kept = values(numbers, {n, V}, dtype, skip);
    auto ids = random_integers(n, 2, static_cast<std::uint64_t>(V));
    std::vector<double> weight = random_vector<double>(n, 3);
    for (std::size_t t = 0; t < ids.size(); ++t) {
      if (t % 5 == 1) ids[t] = -1;  // also with a weight
      if (t % 5 == 2) weight[t] = 0;
      if (t % 5 == 3) ids[t] = static_cast<std::int32_t>(t % 2 == 0 ? 0 : V - 1);
    }
    const Both labels = integers(ids), weights = values(weight, {n}, DType::float32);
    const Both nll = output({n}, DType::float64), nll_only = output({n}, DType::float64);
    on_both([&](Stream& stream, auto at) {
      cross_entropy(stream, at(logits), at(nll), at(labels), at(weights), 37.0, true);
      cross_entropy(stream, at(kept), at(nll_only), at(labels), at(weights), 37.0, false);
    });
    expect_agrees(nll, what);
    expect_agrees(nll_only, what);
    expect_agrees(logits, what);
    expect_agrees(kept, what);
    const std::vector<double> slopes = on_host(logits.gpu);
    for (std::size_t i = 0; i < slopes.size(); ++i) {
      const std::size_t t = i / static_cast<std::size_t>(V);
      const bool counts = ids[t] >= 0 && weight[t] != 0;
      ASSERT_TRUE(counts || slopes[i] == 0) << what;
    }
  }
};

TEST_F(GpuCrossEntropyTest, AgreesForAnyVocabulary) {
  for (DType dtype : storage_types) {
    for (std::int64_t V : {1, 3, 8, 257, 5003}) {
      for (std::int64_t n : {0, 1, 11}) expect_agreement(dtype, n, V, 2, n % 3);
    }
    for (std::int64_t V : {34005, 66773}) expect_agreement(dtype, 6, V, 2, 0);  // many loads a thread; wide rows
  }
}

TEST_F(GpuCrossEntropyTest, LogitsOfAnySize) {
  for (DType dtype : storage_types) {
    expect_agreement(dtype, 7, 300, 1e-3, 0);
    expect_agreement(dtype, 7, 300, 1e4, 0);
    expect_agreement(dtype, 7, 300, 1, 0, -1e4);
    expect_agreement(dtype, 7, 300, 1e30, 0);
  }
}

TEST_F(GpuCrossEntropyTest, UnderASoftcap) {
  for (const DType dtype : storage_types) {
    for (const std::int64_t V : {1, 7, 300, 5003}) {
      for (const double softcap : {0.5, 30.0}) {
        forget();
        const Both capped = random({5, V}, dtype, 1);
        on_both([&](Stream& stream, auto at) { cap_logits(stream, at(capped), softcap); });
        expect_agrees(capped, "capped");
      }
      // The gradient is that of the same capped logits.
      forget();
      std::vector<double> numbers = random_vector<double>(4 * V, 1, 2);
      for (double& x : numbers) x = 3 * std::tanh(x / 3);
      const Both logits = values(numbers, {4, V}, dtype, 1),
                 labels = integers({0, -1, static_cast<std::int32_t>(V - 1), 0});
      const Both weights = values({1, 1, 0.5, 0}, {4}, DType::float32), nll = output({4}, DType::float64);
      on_both([&](Stream& stream, auto at) {
        cross_entropy(stream, at(logits), at(nll), at(labels), at(weights), 7.0, true, 3.0);
      });
      expect_agrees(nll, "nll");
      expect_agrees(logits, "slopes");
    }
  }
}

TEST_F(GpuCrossEntropyTest, MaskedLogitsAndWhatIsNoNumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> numbers = random_vector<double>(3 * 40, 1);
  for (std::size_t i = 0; i < 40; ++i) {
    if (i % 3 != 0) numbers[i] = -infinity;  // most of row 0
  }
  numbers[40 + 17] = std::nan("");  // row 1
  const Both logits = values(numbers, {3, 40}, DType::float32), labels = integers({3, 5, 7});
  const Both weights = values({1, 1, 1}, {3}, DType::float32), nll = output({3}, DType::float64);
  on_gpu([&] { cross_entropy(gpu(), logits.gpu, nll.gpu, labels.gpu, weights.gpu, 1, true); });
  const std::vector<double> loss = on_host(nll.gpu), slopes = on_host(logits.gpu);
  double sum = 0;
  for (std::size_t i = 0; i < 40; i += 3) sum += std::exp(static_cast<double>(static_cast<float>(numbers[i])));
  EXPECT_NEAR(loss[0], std::log(sum) - static_cast<double>(static_cast<float>(numbers[3])), 1e-5);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(slopes[i] == 0, i % 3 != 0);
  EXPECT_TRUE(std::isnan(loss[1]));
  EXPECT_FALSE(std::isnan(loss[2]));
}

TEST_F(GpuCrossEntropyTest, WeightedSum) {
  for (std::int64_t n : {0, 1, 255, 3 * 4096 + 9}) {
    auto ids = random_integers(n, 1, 3);
    for (auto& id : ids) --id;
    const Both losses = random({n}, DType::float64, 2), weights = random({n}, DType::float32, 3);
    const Both labels = integers(ids), sum = values({0.5}, {1}, DType::float64), replaced = output({1}, DType::float64);
    on_both([&](Stream& stream, auto at) {
      weighted_sum(stream, at(sum), at(losses), at(weights), at(labels), true);
      weighted_sum(stream, at(replaced), at(losses), at(weights), at(labels), false);
    });
    expect_agrees(sum, "added", 1e-12);
    expect_agrees(replaced, "replaced", 1e-12);
  }
}

}  // namespace
}  // namespace ringtrain::testing
