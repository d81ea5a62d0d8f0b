#include "layers/audit/audited_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace ringtrain {

namespace {

/// A dot product, and the norm of its products.
struct Products {
  double sum = 0, norm = 0;
};

Products multiply(std::span<const double> x, std::span<const double> y) {
  constexpr std::size_t lanes = 8;  // partial sums, so that a compiler can use vectors
  double sums[lanes] = {}, squares[lanes] = {};
  const std::size_t whole = x.size() / lanes * lanes;
  for (std::size_t i = 0; i < whole; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const double product = x[i + lane] * y[i + lane];
      sums[lane] += product;
      squares[lane] += product * product;
    }
  }
  for (std::size_t i = whole; i < x.size(); ++i) {
    const double product = x[i] * y[i];
    sums[0] += product;
    squares[0] += product * product;
  }
  Products all;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    all.sum += sums[lane];
    all.norm += squares[lane];
  }
  all.norm = std::sqrt(all.norm);
  return all;
}

void add(double* to, double factor, std::span<const double> x) {
  for (std::size_t i = 0; i < x.size(); ++i) to[i] += factor * x[i];
}

double largest(std::span<const double> x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

/// A key whose score exceeds the current base by more than this starts a new scale: e^40 is far below a double's limit.
constexpr double largest_exponent = 40;

}  // namespace

AuditedRow::AuditedRow(std::span<double> memory, std::int64_t D, double scale, DType dtype, double softcap)
    : memory_(memory),
      D_(static_cast<std::size_t>(D)),
      scale_(scale),
      softcap_(softcap),
      sums_(dtype == DType::float64 ? 0x1p-53 : 0x1p-24),
      stored_(dtype == DType::bfloat16 ? 0x1p-8 : sums_),
      products_(dtype == DType::bfloat16 ? stored_ : 0) {}

AuditedRow::Score AuditedRow::score_of(double product) const {
  const double scaled = scale_ * product;
  if (softcap_ == 0) return {.value = scaled, .slope = 1};
  const double bent = std::tanh(scaled / softcap_);
  return {.value = softcap_ * bent, .slope = 1 - bent * bent};
}

std::int64_t AuditedRow::class_of(double score) const {
  // P is rounded to a spacing of twice the unit roundoff: scores closer than this round alike.
  const double cell = std::floor(score / (2 * stored_));
  return static_cast<std::int64_t>((std::bit_cast<std::uint64_t>(cell) * 0x9E3779B97F4A7C15u) >> 58);
}

double AuditedRow::relative_error(double score, double products) const {
  return sums_ * (std::sqrt(static_cast<double>(D_)) * scale_ * products + 4 * std::abs(score) + 4);
}

double AuditedRow::largest_of_classes() const {
  double most = 0;
  for (std::size_t i = 0; i < D_; ++i) {
    double square = 0;
    for (std::int64_t which = 0; which < classes; ++which) square += class_shares(which)[i] * class_shares(which)[i];
    most = std::max(most, square);
  }
  return std::sqrt(most);
}

void AuditedRow::begin_sums() {
  std::fill_n(class_shares(0), static_cast<std::size_t>(classes) * D_, 0.0);
  keys_ = 0;
  largest_sum_ = 0;
}

void AuditedRow::count_key(std::int64_t sums) {
  if (++keys_ % 16 == 0) largest_sum_ = std::max(largest_sum_, largest(part(sums)));
}

double AuditedRow::error_of_adding(std::int64_t sums) {
  return sums_ * std::sqrt(static_cast<double>(keys_)) * std::max(largest_sum_, largest(part(sums)));
}

void AuditedRow::begin_forward() {
  base_ = -std::numeric_limits<double>::infinity();
  sum_ = 0;
  std::ranges::fill(part(5), 0.0);
  begin_sums();
  std::fill_n(class_sums(), classes, 0.0);
}

void AuditedRow::rescale(double score) {
  if (score <= base_ + largest_exponent) return;
  const double shrink = std::exp(base_ - score);  // the first key: 0
  base_ = score;
  sum_ *= shrink;
  largest_sum_ *= shrink;
  for (double& value : part(5)) value *= shrink;
  for (double* share = class_shares(0); share != class_sums() + classes; ++share) *share *= shrink;
}

void AuditedRow::add_sink(double sink) {
  rescale(sink);
  const double p = std::exp(sink - base_);
  sum_ += p;
  class_sums()[class_of(sink)] += p * relative_error(sink, 0);
}

void AuditedRow::add_forward() {
  const auto [product, norm] = multiply(query(), key());
  const double score = score_of(product).value;
  rescale(score);
  const double p = std::exp(score - base_), error = p * relative_error(score, norm);
  const std::int64_t score_class = class_of(score);
  sum_ += p;
  class_sums()[score_class] += error;
  add(part(5).data(), p, value());
  add(class_shares(score_class), error + p * products_, value());
  count_key(5);
}

void AuditedRow::end_forward() {
  const double adding = error_of_adding(5) / sum_;
  for (double& value : part(5)) value /= sum_;
  logsumexp_ = base_ + std::log(sum_);
  double square = 0;
  for (std::int64_t which = 0; which < classes; ++which) square += class_sums()[which] * class_sums()[which];
  logsumexp_error_ =
      std::sqrt(square) / sum_ + sums_ * (std::sqrt(static_cast<double>(keys_)) + 2 * std::abs(logsumexp_) + 2);
  logsumexp_bound_ = safety * logsumexp_error_;
  attention_bound_ =
      safety * (largest_of_classes() / sum_ + adding + (stored_ + logsumexp_error_) * largest(attention()));
}

void AuditedRow::begin_backward() {
  const auto [product, norm] = multiply(output_gradient(), run_output());
  delta_ = product;
  delta_error_ = sums_ * (std::sqrt(static_cast<double>(D_)) * norm + std::abs(delta_));
  std::ranges::fill(part(6), 0.0);
  std::ranges::fill(part(7), 0.0);
  begin_sums();
}

void AuditedRow::add_backward() {
  const auto [product, norm] = multiply(query(), key());
  const auto [of_value, value_norm] = multiply(output_gradient(), value());
  const auto [score, slope] = score_of(product);
  const double p = std::exp(score - logsumexp_), share = p * slope * (of_value - delta_);
  double error =
      std::abs(share) * (relative_error(score, norm) + products_) +
      p * slope * sums_ * (std::sqrt(static_cast<double>(D_)) * value_norm + std::abs(of_value) + std::abs(delta_));
  if (softcap_ > 0) {  // the slope's own error: from the score, and from a tanh near 1
    const double bent = std::abs(score) / softcap_, of_score = relative_error(score, norm) / softcap_;
    error += p * std::abs(of_value - delta_) * (2 * bent * slope * of_score + 8 * bent * bent * sums_);
  }
  add(part(6).data(), share, key());
  add(part(7).data(), p * slope, key());  // the effect of an error in delta
  add(class_shares(class_of(score)), error, key());
  count_key(6);
}

void AuditedRow::end_backward() {
  const double adding = error_of_adding(6);
  for (double& value : part(6)) value *= scale_;
  query_gradient_bound_ = safety * (scale_ * (largest_of_classes() + adding + delta_error_ * largest(part(7))) +
                                    (logsumexp_error_ + 2 * sums_) * largest(query_gradient()));
}

}  // namespace ringtrain
