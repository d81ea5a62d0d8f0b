// Numbers from rows of logits on the host, in double: one place for the logsumexp, so that what is compared with itself
// differs by nothing. Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace ringtrain {

/// Returns log(sum of exp(row[V])).
template <class R>
double log_sum_exp(const R* row, std::int64_t V) {
  R largest = -std::numeric_limits<R>::infinity();
  for (std::int64_t i = 0; i < V; ++i) largest = row[i] > largest ? row[i] : largest;
  double sum = 0;
  for (std::int64_t i = 0; i < V; ++i) sum += std::exp(static_cast<double>(row[i]) - static_cast<double>(largest));
  return static_cast<double>(largest) + std::log(sum);
}

/// Returns the divergence of Kullback and Leibler, sum of p (log p - log q) in nats, of p = softmax(from[V]) and q =
/// softmax(to[V]), whose log_sum_exp() are given. Exactly 0 for equal rows.
template <class R>
double divergence(const R* from, double from_sum, const R* to, double to_sum, std::int64_t V) {
  double sum = 0;
  for (std::int64_t i = 0; i < V; ++i) {
    const double log_p = static_cast<double>(from[i]) - from_sum, log_q = static_cast<double>(to[i]) - to_sum;
    const double p = std::exp(log_p);
    if (p > 0) sum += p * (log_p - log_q);
  }
  return sum;
}

}  // namespace ringtrain
