#include "train/generation/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/error.h"
#include "framework/random.h"

namespace ringtrain {

void check_sampling(const SamplingOptions& options) {
  const auto require = [](bool holds, const char* flag, double value, const char* range) {
    if (!holds) fail(ExitCode::usage, "{} {}: must be {}", flag, value, range);
  };
  require(options.temperature >= 0 && std::isfinite(options.temperature), "--temperature", options.temperature,
          "0 (the likeliest token) or a positive number");
  require(options.top_k >= 0, "--top-k", static_cast<double>(options.top_k), "0 (all tokens) or more");
  require(options.top_p > 0 && options.top_p <= 1, "--top-p", options.top_p, "above 0 and at most 1");
  require(options.min_p >= 0 && options.min_p <= 1, "--min-p", options.min_p, "from 0 to 1");
  require(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty), "--repetition-penalty",
          options.repetition_penalty, "a positive number; 1: no penalty");
  if (options.temperature > 0) return;
  const char* const set = options.top_k != 0   ? "--top-k"
                          : options.top_p != 1 ? "--top-p"
                          : options.min_p != 0 ? "--min-p"
                                               : nullptr;
  if (set == nullptr) return;
  fail(ExitCode::usage,
       "{} has no effect at --temperature 0, which always takes the likeliest token; give a temperature, e.g. 1", set);
}

TokenSampler::TokenSampler(const SamplingOptions& options, std::int64_t vocab_size)
    : options_(options),
      scores_(static_cast<std::size_t>(vocab_size)),
      is_there_(static_cast<std::size_t>(vocab_size), false) {
  kept_.reserve(scores_.size());
}

void TokenSampler::add(std::int32_t token) {
  ensure(token >= 0 && token < std::ssize(scores_), "a token of the vocabulary");
  is_there_[token] = true;
}

void TokenSampler::read(const ConstTensorView& logits) {
  ensure(logits.numel() == std::ssize(scores_), "a logit for each token");
  dispatch_dtype(logits.dtype, [&]<class S, class>() {
    std::transform(logits.as<S>(), logits.as<S>() + logits.numel(), scores_.begin(), [](S x) { return widened(x); });
  });
  double sum = 0;  // stays 0 unless a product with 0 is NaN
  for (const double score : scores_) sum += score * 0;
  if (sum != 0) {
    fail(ExitCode::numeric, "a logit is NaN or infinite: damaged weights, or an overflow (try float32)");
  }
  if (options_.repetition_penalty == 1) return;
  for (std::size_t token = 0; token < scores_.size(); ++token) {
    if (!is_there_[token]) continue;
    double& score = scores_[token];
    score = score < 0 ? score * options_.repetition_penalty : score / options_.repetition_penalty;
  }
}

double TokenSampler::weight(std::int32_t token) const {
  return std::exp((scores_[token] - largest_) / options_.temperature);
}

void TokenSampler::sort_front(std::size_t count) {
  const auto before = [this](std::int32_t a, std::int32_t b) {
    const double x = scores_[a], y = scores_[b];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count), kept_.end(), before);
}

void TokenSampler::keep_top_k() {
  const auto k = static_cast<std::size_t>(options_.top_k);
  if (k == 0 || k >= kept_.size()) return;
  sort_front(k);
  kept_.resize(k);
  std::ranges::sort(kept_);
}

void TokenSampler::keep_top_p() {
  if (options_.top_p == 1) return;
  double total = 0;
  for (const std::int32_t token : kept_) total += weight(token);
  const double wanted = options_.top_p * total;
  double sum = 0;
  std::size_t sorted = 0, count = 0;
  while (sum < wanted && count < kept_.size()) {
    if (count == sorted) {  // the likeliest few are usually enough
      sorted = std::min(kept_.size(), std::max<std::size_t>(64, 8 * sorted));
      sort_front(sorted);
    }
    sum += weight(kept_[count++]);
  }
  kept_.resize(count);
  std::ranges::sort(kept_);
}

void TokenSampler::keep_min_p() {
  if (options_.min_p == 0) return;
  std::erase_if(kept_, [this](std::int32_t token) { return weight(token) < options_.min_p; });
}

std::int32_t TokenSampler::sample(const ConstTensorView& logits, std::uint64_t index) {
  read(logits);
  // The first of equal ones.
  const auto best = static_cast<std::int32_t>(std::ranges::max_element(scores_) - scores_.begin());
  if (options_.temperature == 0) return best;
  largest_ = scores_[best];
  kept_.resize(scores_.size());
  std::iota(kept_.begin(), kept_.end(), 0);
  keep_top_k();
  keep_top_p();
  keep_min_p();
  double total = 0;
  for (const std::int32_t token : kept_) total += weight(token);
  const double drawn = random_uniform(options_.seed, Purpose::sampling, index) * total;
  double sum = 0;
  for (const std::int32_t token : kept_) {
    sum += weight(token);
    if (drawn < sum) return token;
  }
  return best;  // rounding made the sum of all smaller than the draw
}

}  // namespace ringtrain
