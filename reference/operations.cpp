#include "reference/operations.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace ringtrain::reference {

namespace {

std::int64_t rows_of(const Vector& x, std::int64_t width) {
  return static_cast<std::int64_t>(x.size()) / width;
}

/// y += factor * x, n elements.
void add(double* y, double factor, const double* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

/// Mean (0 if the norm has none) and 1 / sqrt(var + eps) of a row.
struct Statistics {
  double mean = 0, rstd = 0;
};

Statistics statistics_of(const double* x, std::int64_t C, bool centred, double eps) {
  Statistics s;
  for (std::int64_t c = 0; centred && c < C; ++c) s.mean += x[c] / static_cast<double>(C);
  double variance = 0;
  for (std::int64_t c = 0; c < C; ++c) variance += (x[c] - s.mean) * (x[c] - s.mean) / static_cast<double>(C);
  s.rstd = 1 / std::sqrt(variance + eps);
  return s;
}

}  // namespace

Vector transposed(const Vector& w, std::int64_t rows, std::int64_t columns) {
  Vector result(w.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) result[j * rows + i] = w[i * columns + j];
  }
  return result;
}

Vector linear(const Vector& x, const Vector& w, std::int64_t O) {
  const std::int64_t I = rows_of(w, O), T = rows_of(x, I);
  Vector y(T * O);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t i = 0; i < I; ++i) add(&y[t * O], x[t * I + i], &w[i * O], O);
  }
  return y;
}

void linear_backward_input(Vector& dx, const Vector& dy, const Vector& w, std::int64_t I, std::int64_t O) {
  for (std::int64_t t = 0; t < rows_of(dy, O); ++t) {
    for (std::int64_t o = 0; o < O; ++o) add(&dx[t * I], dy[t * O + o], &w[o * I], I);
  }
}

void linear_backward_weight(Vector& dw, Vector* db, const Vector& dy, const Vector& x, std::int64_t I, std::int64_t O) {
  for (std::int64_t t = 0; t < rows_of(dy, O); ++t) {
    for (std::int64_t o = 0; o < O; ++o) add(&dw[o * I], dy[t * O + o], &x[t * I], I);
    if (db != nullptr) add(db->data(), 1, &dy[t * O], O);
  }
}

Vector norm(const Vector& x, const Vector& w, const Vector* b, double eps) {
  const auto C = static_cast<std::int64_t>(w.size());
  Vector y(x.size());
  for (std::int64_t t = 0; t < rows_of(x, C); ++t) {
    const Statistics s = statistics_of(&x[t * C], C, b != nullptr, eps);
    for (std::int64_t c = 0; c < C; ++c) {
      y[t * C + c] = (x[t * C + c] - s.mean) * s.rstd * w[c] + (b != nullptr ? (*b)[c] : 0);
    }
  }
  return y;
}

void norm_backward(Vector& dx, Vector& dw, Vector* db, const Vector& dy, const Vector& dy_of_weights, const Vector& x,
                   const Vector& w, double eps) {
  const auto C = static_cast<std::int64_t>(w.size());
  Vector normed(w.size()), scaled(w.size());
  for (std::int64_t t = 0; t < rows_of(x, C); ++t) {
    const Statistics s = statistics_of(&x[t * C], C, db != nullptr, eps);
    // With n = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - n mean(g n)); without a mean, the term mean(g)
    // drops out.
    double mean_g = 0, mean_gn = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      normed[c] = (x[t * C + c] - s.mean) * s.rstd;
      scaled[c] = dy[t * C + c] * w[c];
      mean_g += db != nullptr ? scaled[c] / static_cast<double>(C) : 0;
      mean_gn += scaled[c] * normed[c] / static_cast<double>(C);
    }
    for (std::int64_t c = 0; c < C; ++c) {
      dx[t * C + c] += s.rstd * (scaled[c] - mean_g - normed[c] * mean_gn);
      dw[c] += dy_of_weights[t * C + c] * normed[c];
      if (db != nullptr) (*db)[c] += dy_of_weights[t * C + c];
    }
  }
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}
double silu_derivative(double x) {
  const double sigmoid = 1 / (1 + std::exp(-x));
  return sigmoid * (1 + x * (1 - sigmoid));
}

namespace {
constexpr double cubic = 0.044715;
const double root = std::sqrt(2 / std::numbers::pi);
}  // namespace

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(root * (x + cubic * x * x * x)));
}
double gelu_derivative(double x) {
  const double t = std::tanh(root * (x + cubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * cubic * x * x);
}

void softcap(Vector& x, double c) {
  for (double& each : x) each = c * std::tanh(each / c);
}

double softcap_derivative(double capped, double c) {
  return 1 - capped / c * (capped / c);
}

double cross_entropy(Vector& logits, std::int32_t label, const Rounds& rounds) {
  const double largest = *std::max_element(logits.begin(), logits.end()), target = logits[label];
  const std::int64_t V = std::ssize(logits), terms = std::max<std::int64_t>(8, (V + 511) / 512);
  Vector groups((V + terms - 1) / terms);
  for (std::int64_t i = 0; i < V; ++i) groups[i / terms] += logits[i] = std::exp(logits[i] - largest);
  if (rounds) rounds(groups, terms, Summing::one_by_one);
  const double sum = std::accumulate(groups.begin(), groups.end(), 0.0);
  for (double& logit : logits) logit /= sum;
  logits[label] -= 1;
  return std::log(sum) + largest - target;
}

}  // namespace ringtrain::reference
