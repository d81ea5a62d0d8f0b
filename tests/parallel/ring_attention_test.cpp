// Compares attention over a ring of thread ranks with the independent reference in double: every layout, ring size,
// mask, and odd length. float's error does not grow with the ring; a contiguous causal ring gives the bits of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "tests/parallel/ring_case.h"

namespace ringtrain::testing {
namespace {

/// Largest difference relative to the reference's largest value; infinite values must agree. If the reference is only
/// rounding noise (a query that sees one key has no gradient), it is relative to the inputs, which have size 1.
double relative_error(const std::vector<double>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isinf(expected[i]) && found[i] == expected[i]) continue;
    if (!std::isfinite(found[i])) return INFINITY;
    difference = std::max(difference, std::abs(found[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return difference / (largest > 1e-12 ? largest : 1);
}

double worst_error(const Result& found, const Result& expected) {
  return std::max({relative_error(found.out, expected.out), relative_error(found.lse, expected.lse),
                   relative_error(found.dq, expected.dq), relative_error(found.dk, expected.dk),
                   relative_error(found.dv, expected.dv)});
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  unsigned seed = 1;
  const auto add = [&](Problem p) {
    make_inputs(p, seed++);
    all.push_back(std::move(p));
  };
  for (const std::int64_t S : {1, 5, 37, 64, 131}) {
    for (const bool causal : {true, false}) {
      for (const std::int64_t window : {0, 7, 40}) {
        for (const bool documents : {false, true}) {
          add({.S = S, .B = documents ? 2 : 1, .H = 4, .G = 2, .mask = {causal, window}, .with_documents = documents});
        }
      }
    }
  }
  add({.S = 67, .B = 3, .H = 3, .G = 3, .D = 16, .mask = {true, 0}, .with_documents = true});
  add({.S = 300, .H = 6, .G = 1, .D = 4, .mask = {true, 1}});
  add({.S = 300, .H = 6, .G = 1, .D = 4, .mask = {false, 70}, .with_documents = true});
  return all;
}

class RingAttention : public ::testing::TestWithParam<std::tuple<int, Layout>> {};

TEST_P(RingAttention, EqualsTheReference) {
  const auto [N, layout] = GetParam();
  double worst = 0;
  std::size_t turn = static_cast<std::size_t>(N);
  for (const Problem& p : problems()) {
    // Blocks are returned whole or in parts: each problem runs in each way on some ring.
    const std::int64_t min_part = std::array{0, 1, 9}[turn++ % 3];
    const Result found = run_ring(p, {.N = N, .layout = layout, .min_part = min_part});
    const double error = worst_error(found, reference_result(p));
    EXPECT_LE(error, 1e-11) << p.name() << ", parts of " << min_part;
    worst = std::max(worst, error);
  }
  RecordProperty("worst_error", fmt::format("{:.2e}", worst));
  std::printf("worst error %.2e of 1e-11 allowed\n", worst);
}

INSTANTIATE_TEST_SUITE_P(All, RingAttention,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5, 8), ::testing::ValuesIn(all_layouts)),
                         [](const auto& param_info) {
                           return fmt::format("{}_{}", name_of(std::get<1>(param_info.param)),
                                              std::get<0>(param_info.param));
                         });

double rms_error(const std::vector<double>& found, const std::vector<double>& expected) {
  double sum = 0;
  for (std::size_t i = 0; i < found.size(); ++i) sum += (found[i] - expected[i]) * (found[i] - expected[i]);
  return std::sqrt(sum / static_cast<double>(found.size()));
}

/// The allowed ratio of a ring's error, for any size, to that of one rank, in each of the tensors.
void expect_errors_of_one_rank(const Problem& p, DType dtype, double times) {
  const Result expected = reference_result(p);
  const Result one = run_ring(p, {.N = 1, .dtype = dtype});
  const double worst = dtype == DType::float32 ? 4e-6 : 4e-3;  // of the largest element; bfloat16 rounds at 2^-9
  EXPECT_LE(worst_error(one, expected), worst);
  using Field = std::vector<double> Result::*;
  for (const int N : {2, 3, 4, 8}) {
    for (const Layout layout : all_layouts) {
      const Result found = run_ring(p, {.N = N, .layout = layout, .dtype = dtype});
      for (const Field field : {&Result::out, &Result::dq, &Result::dk, &Result::dv}) {
        EXPECT_LE(rms_error(found.*field, expected.*field) / rms_error(one.*field, expected.*field), times)
            << name_of(layout) << ' ' << N;
      }
      EXPECT_LE(worst_error(found, expected), worst) << name_of(layout) << ' ' << N;
    }
  }
}

TEST(RingAttentionFloat, ErrorDoesNotGrowWithTheRing) {
  Problem p{.S = 517, .B = 2, .H = 4, .G = 2, .D = 16, .mask = {.causal = true}};
  make_inputs(p, 99);
  round_inputs<float>(p);
  expect_errors_of_one_rank(p, DType::float32, 1.2);
}

/// Nothing is rounded to bfloat16 between two hops: the ring only adds float32's errors to those of the products.
TEST(RingAttentionBFloat16, ErrorDoesNotGrowWithTheRing) {
  Problem p{.S = 517, .B = 2, .H = 4, .G = 2, .D = 64, .mask = {.causal = true}};
  make_inputs(p, 99);
  round_inputs<BFloat16>(p);
  expect_errors_of_one_rank(p, DType::bfloat16, 1.05);
}

TEST(RingAttentionBits, ContiguousCausalRingAddsInTheOrderOfOneDevice) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const std::int64_t window : {0, 200}) {
      Problem p{.S = 1536, .H = 4, .G = 2, .D = 16, .mask = {.causal = true, .window = window}};
      make_inputs(p, 5);
      const Result one = run_ring(p, {.N = 1, .dtype = dtype});
      for (const int N : {2, 3, 6}) {  // shards are multiples of the kernel's tiles, of 256 and 128
        for (const std::int64_t min_part : {0, 256}) {
          EXPECT_TRUE(run_ring(p, {.N = N, .dtype = dtype, .min_part = min_part}) == one)
              << "N " << N << ", window " << window << ", parts of " << min_part;
        }
      }
    }
  }
}

TEST(RingAttentionBits, TimingChangesNothing) {
  for (const Layout layout : {Layout::contiguous, Layout::zigzag}) {
    for (const bool causal : {true, false}) {
      Problem p{.S = 131, .B = 2, .H = 4, .G = 2, .mask = {causal, 40}, .with_documents = true};
      make_inputs(p, 11);
      RunOptions options{.N = 5, .layout = layout, .dtype = DType::float32, .passes = 3, .min_part = 13};
      const Result calm = run_ring(p, options);
      EXPECT_LE(worst_error(calm, reference_result(p)), 4e-6);
      for (unsigned seed = 1; seed <= 4; ++seed) {
        options.jitter_seed = seed;
        EXPECT_TRUE(run_ring(p, options) == calm) << "seed " << seed;
      }
    }
  }
}

TEST(RingAttentionTraffic, IsWhatTheScheduleNeeds) {
  // Causal contiguous, 4 ranks of 32 tokens: 6 transfers of blocks in each direction, 6 of gradients and 3 returns.
  Problem p{.S = 128, .H = 4, .G = 2, .D = 8, .mask = {.causal = true}};
  make_inputs(p, 3);
  std::vector<testing::Traffic> traffic;
  run_ring(p, {.N = 4, .traffic = &traffic});
  testing::Traffic sum;
  for (const auto& own : traffic) {
    sum.messages += own.messages;
    sum.bytes += own.bytes;
  }
  const std::size_t block = 2 * 32 * 2 * 8 * sizeof(double);
  EXPECT_EQ(sum.messages, 6 + 6 + 6 + 3);
  EXPECT_EQ(sum.bytes, (6 + 6 + 6 + 3) * block);
  EXPECT_EQ(traffic[3].messages, 3);  // the last rank only returns the gradients of three blocks

  // In two parts, gradients have the same number of bytes: dk and dv of each part are separate messages.
  run_ring(p, {.N = 4, .min_part = 16, .traffic = &traffic});
  testing::Traffic in_parts;
  for (const auto& own : traffic) {
    in_parts.messages += own.messages;
    in_parts.bytes += own.bytes;
  }
  EXPECT_EQ(in_parts.messages, 6 + 6 + 4 * (6 + 3));
  EXPECT_EQ(in_parts.bytes, sum.bytes);

  // With a window that reaches one shard back, each rank needs one neighbor.
  p.mask.window = 33;
  run_ring(p, {.N = 4, .traffic = &traffic});
  EXPECT_EQ(traffic[0].messages, 3);  // keys and values twice, its gradients once
  EXPECT_EQ(traffic[3].messages, 1);  // the return
  p.mask.window = 1;
  run_ring(p, {.N = 4, .traffic = &traffic});
  for (const auto& own : traffic) EXPECT_EQ(own.messages, 0);
}

}  // namespace
}  // namespace ringtrain::testing
