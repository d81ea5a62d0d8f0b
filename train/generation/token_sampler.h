// How the next token is chosen from a model's logits: the likeliest one, or a draw. A draw scales and filters the
// distribution in the order of Hugging Face's generate(): repetition penalty (Keskar et al., "CTRL", 2019, section
// 4.1), temperature, top-k (Fan et al., 2018), top-p (Holtzman et al., 2020), min-p (Nguyen et al., 2024). Its random
// number depends on (seed, index of the new token), so text does not depend on the mesh or on threads. Computes in
// double.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/const_tensor_view.h"

namespace ringtrain {

struct SamplingOptions {
  double temperature = 0;         // of the distribution; 0: no draw, the likeliest token
  std::int64_t top_k = 0;         // draws among this many likeliest tokens; 0: all
  double top_p = 1;               // among the fewest likeliest whose probabilities sum to at least this
  double min_p = 0;               // among those with at least this fraction of the likeliest's probability
  double repetition_penalty = 1;  // divides positive and multiplies negative logits of tokens that have occurred
  std::uint64_t seed = 0;
};

/// Throws Error(usage), which names the flag, if a value is out of range or has no effect because temperature is 0.
void check_sampling(const SamplingOptions& options);

class TokenSampler {
 public:
  TokenSampler(const SamplingOptions& options, std::int64_t vocab_size);

  /// Records that a token of the vocabulary has occurred: in the prompt, or chosen.
  void add(std::int32_t token);
  /// Returns the next token. logits: [V], float32, float64, or bfloat16, on the host. index: of the new token, from 0.
  /// Ties go to the lowest id. Throws Error(numeric) if a logit is not finite.
  std::int32_t sample(const ConstTensorView& logits, std::uint64_t index);

 private:
  /// Fills scores_ from the logits and applies the repetition penalty.
  void read(const ConstTensorView& logits);
  /// Sorts the likeliest `count` tokens of kept_ to its front: by score, then by id.
  void sort_front(std::size_t count);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  /// Returns exp((score - largest) / temperature) of a token: its probability, unnormalized.
  double weight(std::int32_t token) const;

  SamplingOptions options_;
  std::vector<double> scores_;      // [V]
  std::vector<std::int32_t> kept_;  // tokens that may be drawn
  std::vector<bool> is_there_;      // [V]
  double largest_ = 0;              // of the scores
};

}  // namespace ringtrain
