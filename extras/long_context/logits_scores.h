// Numbers from rows of logits on the host, in double. There is only one logsumexp, so a model that is compared with
// itself has no difference. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "framework/dtype.h"

namespace ringtrain {

/// Returns log(sum of exp(row[V])).
template <class S>
double log_sum_exp(const S* row, std::int64_t V) {
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < V; ++i) largest = std::max(largest, static_cast<double>(widened(row[i])));
  double sum = 0;
  for (std::int64_t i = 0; i < V; ++i) sum += std::exp(static_cast<double>(widened(row[i])) - largest);
  return largest + std::log(sum);
}

/// Returns the Kullback-Leibler divergence, the sum of p (log p - log q) in nats, of p = softmax(from[V]) and q =
/// softmax(to[V]), given the log_sum_exp() of both. Exactly 0 for equal rows.
template <class S>
double divergence(const S* from, double from_sum, const S* to, double to_sum, std::int64_t V) {
  double sum = 0;
  for (std::int64_t i = 0; i < V; ++i) {
    const double log_p = static_cast<double>(widened(from[i])) - from_sum;
    const double log_q = static_cast<double>(widened(to[i])) - to_sum;
    const double p = std::exp(log_p);
    if (p > 0) sum += p * (log_p - log_q);
  }
  return sum;
}

}  // namespace ringtrain
