// Numbers from rows of logits on the host, in double: one place for the logsumexp, so that what is compared with itself
// differs by nothing. Pure.
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

/// Returns the divergence of Kullback and Leibler, sum of p (log p - log q) in nats, of p = softmax(from[V]) and q =
/// softmax(to[V]), whose log_sum_exp() are given. Exactly 0 for equal rows.
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
