// The choice of a token: its distribution for each flag compared with one computed here from the header's description,
// and refusals.
#include "train/generation/token_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/support/error_of.h"

namespace ringtrain::testing {
namespace {

const std::vector<double> logits{0.3, 2.0, -1.0, 1.2, 2.0, 0.0, -3.0};

ConstTensorView view(const std::vector<double>& x) {
  return host_view(x.data(), {std::ssize(x)});
}

/// Returns the softmax of x.
std::vector<double> softmax(std::vector<double> x) {
  double sum = 0;
  for (double& value : x) sum += value = std::exp(value);
  for (double& value : x) value /= sum;
  return x;
}

/// Returns probabilities with those of tokens outside `kept` set to zero.
std::vector<double> only(std::vector<double> p, const std::vector<std::size_t>& kept) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (std::ranges::find(kept, i) == kept.end()) p[i] = 0;
    sum += p[i];
  }
  for (double& value : p) value /= sum;
  return p;
}

/// Draws many tokens, and expects each as often as its probability predicts, within four standard deviations; never if
/// it is 0.
void expect_distribution(const SamplingOptions& options, const std::vector<double>& expected,
                         const std::vector<std::int32_t>& there = {}) {
  constexpr int draws = 40000;
  check_sampling(options);
  TokenSampler sampler(options, std::ssize(logits));
  for (const std::int32_t token : there) sampler.add(token);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts[sampler.sample(view(logits), static_cast<std::uint64_t>(i))];
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double p = expected[i], stddev = std::sqrt(draws * p * (1 - p));
    EXPECT_NEAR(counts[i], draws * p, 4 * stddev) << "token " << i;
  }
}

TEST(TokenSamplerTest, DrawsFromTheSoftmaxOfLogitsOverTemperature) {
  expect_distribution({.temperature = 1}, softmax(logits));
  auto hot = logits;
  for (double& x : hot) x /= 2.5;
  expect_distribution({.temperature = 2.5, .seed = 3}, softmax(hot));
}

TEST(TokenSamplerTest, TopKKeepsTheLikeliestTokens) {
  const auto p = softmax(logits);
  expect_distribution({.temperature = 1, .top_k = 3}, only(p, {1, 3, 4}));
  expect_distribution({.temperature = 1, .top_k = 1}, only(p, {1}));  // the lowest id of equals
  expect_distribution({.temperature = 1, .top_k = 100}, p);
}

TEST(TokenSamplerTest, TopPKeepsTheFewestTokensWhoseProbabilitiesSumToIt) {
  const auto p = softmax(logits);  // in order: 1 and 4 with 0.35 each, 3 with 0.16, 0 with 0.06, 5, 2, 6
  ASSERT_LT(p[1] + p[4], 0.75);
  ASSERT_GT(p[1] + p[4] + p[3], 0.75);
  expect_distribution({.temperature = 1, .top_p = 0.75}, only(p, {1, 4, 3}));
  expect_distribution({.temperature = 1, .top_p = 0.2}, only(p, {1}));
  expect_distribution({.temperature = 1, .top_p = 1e-9}, only(p, {1}));
  // After top-k, the probabilities are those of the tokens that it kept.
  expect_distribution({.temperature = 1, .top_k = 2, .top_p = 0.4}, only(p, {1}));
  expect_distribution({.temperature = 1, .top_k = 2, .top_p = 0.6}, only(p, {1, 4}));
}

TEST(TokenSamplerTest, MinPKeepsTokensNearTheLikeliest) {
  const auto p = softmax(logits);
  expect_distribution({.temperature = 1, .min_p = 0.4}, only(p, {1, 3, 4}));  // e^-0.8 = 0.45, e^-1.7 = 0.18
  expect_distribution({.temperature = 1, .min_p = 0.15}, only(p, {0, 1, 3, 4}));
  expect_distribution({.temperature = 1, .min_p = 1}, only(p, {1, 4}));
}

TEST(TokenSamplerTest, ARepetitionPenaltyMakesWhatWasThereUnlikely) {
  auto penalised = logits;
  penalised[1] /= 1.5;
  penalised[2] *= 1.5;
  expect_distribution({.temperature = 1, .repetition_penalty = 1.5}, softmax(penalised), {1, 2, 1});
  // It also applies to the likeliest token.
  TokenSampler greedy({.repetition_penalty = 1.5}, std::ssize(logits));
  EXPECT_EQ(greedy.sample(view(logits), 0), 1);
  greedy.add(1);
  EXPECT_EQ(greedy.sample(view(logits), 1), 4);
}

TEST(TokenSamplerTest, WhatIsNoTokenIsAnErrorBeforeItsTableIsTouched) {
  TokenSampler sampler({.repetition_penalty = 1.5}, std::ssize(logits));
  for (const std::int32_t bad : {7, 8, 300, -1, INT32_MAX, INT32_MIN}) {
    error_of(ExitCode::internal, [&] { sampler.add(bad); });
  }
  EXPECT_EQ(sampler.sample(view(logits), 0), 1);
}

TEST(TokenSamplerTest, TheLikeliestTokenIsTheFirstOfEquals) {
  TokenSampler sampler({}, std::ssize(logits));
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(sampler.sample(view(logits), i), 1);
  const std::vector<float> narrow{-2, -1, -1};
  EXPECT_EQ(TokenSampler({}, 3).sample(host_view(narrow.data(), {3}), 0), 1);
}

TEST(TokenSamplerTest, ADrawDependsOnlyOnSeedAndIndex) {
  const SamplingOptions options{.temperature = 1, .seed = 9};
  TokenSampler forth(options, std::ssize(logits)), back(options, std::ssize(logits));
  std::vector<std::int32_t> tokens(50), reversed(50);
  for (std::size_t i = 0; i < 50; ++i) tokens[i] = forth.sample(view(logits), i);
  for (std::size_t i = 50; i-- > 0;) reversed[i] = back.sample(view(logits), i);
  EXPECT_EQ(tokens, reversed);
  TokenSampler other({.temperature = 1, .seed = 10}, std::ssize(logits));
  for (std::size_t i = 0; i < 50; ++i) reversed[i] = other.sample(view(logits), i);
  EXPECT_NE(tokens, reversed);
}

TEST(TokenSamplerTest, TopPOfALargeVocabularyKeepsWhatASortWould) {
  constexpr std::size_t V = 1500;
  std::vector<double> many(V);
  for (std::size_t i = 0; i < V; ++i) many[i] = static_cast<double>(i * 7919 % V) / 600;
  const auto p = softmax(many);
  std::vector<std::size_t> order(V);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, std::greater{}, [&](std::size_t i) { return p[i]; });
  double sum = 0;
  std::size_t kept = 0;
  while (sum < 0.8) sum += p[order[kept++]];
  ASSERT_GT(kept, 600u);  // more than are sorted initially
  const double lowest = p[order[kept - 1]];
  TokenSampler sampler({.temperature = 1, .top_p = 0.8}, V);
  double least = 1;
  for (std::uint64_t i = 0; i < 20000; ++i) least = std::min(least, p[sampler.sample(view(many), i)]);
  EXPECT_GE(least, lowest);
  EXPECT_LT(least, lowest * 1.02);
}

TEST(TokenSamplerTest, LogitsThatAreNoNumbersAreRefused) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    auto broken = logits;
    broken[5] = bad;
    error_of(ExitCode::numeric, [&] { TokenSampler({}, std::ssize(broken)).sample(view(broken), 0); });
  }
}

TEST(TokenSamplerTest, FlagsOutOfRangeAreRefused) {
  const auto refused = [](const SamplingOptions& options, const char* flag) {
    const std::string sentence = error_of(ExitCode::usage, [&] { check_sampling(options); });
    EXPECT_EQ(sentence.find(flag), 0u) << sentence;
  };
  refused({.temperature = -1}, "--temperature");
  refused({.temperature = std::numeric_limits<double>::quiet_NaN()}, "--temperature");
  refused({.temperature = 1, .top_k = -1}, "--top-k");
  refused({.temperature = 1, .top_p = 0}, "--top-p");
  refused({.temperature = 1, .top_p = 1.1}, "--top-p");
  refused({.temperature = 1, .min_p = -0.1}, "--min-p");
  refused({.repetition_penalty = 0}, "--repetition-penalty");
  // Flags without an effect are also refused.
  refused({.top_k = 3}, "--top-k has no effect");
  refused({.top_p = 0.5}, "--top-p has no effect");
  refused({.min_p = 0.5}, "--min-p has no effect");
  check_sampling({.temperature = 0.5, .top_k = 3, .top_p = 0.5, .min_p = 0.1, .repetition_penalty = 0.9});
}

}  // namespace
}  // namespace ringtrain::testing
