// One row of attention (one query of one head) and its dq in plain double, computed key by key as the keys arrive, and
// a bound on how far rounding may move a run's own row from it. It shares no code with the kernels.
//
//   s[j] = scale q.k[j],  p[j] = exp(s[j] - LSE),  O = sum p[j] v[j],  dP[j] = dO.v[j],  delta = dO.O,
//   dS[j] = p[j] (dP[j] - delta),  dq = scale sum dS[j] k[j].
//
// A softcap c replaces s[j] with c tanh(s[j] / c), and multiplies dS[j] by 1 - tanh(s[j] / c)^2. A sink is one more
// score, without a value.
//
// The bounds. Let u be the unit roundoff of a run's sums (2^-24; float64: 2^-53) and w that of what it stores (float32:
// u; bfloat16: 2^-8, to which tensor cores also round P and dS before a product). A dot product of n elements has an
// error of u sqrt(n) times the norm of its products (Higham and Mary, 2019: rounding errors as random numbers). So the
// share of a key in O has the relative error
//
//   e[j] = u (sqrt(D) scale |q * k[j]| + 4 |s[j]| + 4) + r,   |q * k| the norm of the products, r = w in bfloat16 or 0
//
// and its share in dq has an additional u (sqrt(D) |dO * v[j]| + |dP[j]| + |delta|) p[j]. Under a softcap, the slope
// has an error as well. Roundings of different keys are independent; roundings of equal keys are equal. So a hash puts
// keys whose scores round alike into one of 64 classes: shares of a class add up, and classes add as squares. Adding n
// keys one after another has an error of u sqrt(n) times the largest intermediate sum. The bound of a row is 8 times
// all this, the largest over its D elements, plus the errors that move all elements together: storing (w max |O|), the
// rounding of the logsumexp, and that of delta.
#pragma once

#include <cstdint>
#include <span>

#include "framework/dtype.h"

namespace ringtrain {

class AuditedRow {
 public:
  static constexpr double safety = 8;
  static constexpr std::int64_t classes = 64;

  /// Returns how many doubles a row keeps for heads of size D.
  static std::int64_t doubles(std::int64_t D) { return (classes + 8) * D + classes; }

  AuditedRow() = default;
  /// memory: doubles(D) of the caller's doubles, which must outlive this object. dtype: of the run.
  AuditedRow(std::span<double> memory, std::int64_t D, double scale, DType dtype, double softcap = 0);

  // Inputs that the caller fills, [D] each: q before forward; k and v before each key; before backward, dO, and the
  // run's O, from which delta is computed: forward has compared it with attention().
  std::span<double> query() { return part(0); }
  std::span<double> key() { return part(1); }
  std::span<double> value() { return part(2); }
  std::span<double> output_gradient() { return part(3); }
  std::span<double> run_output() { return part(4); }

  void begin_forward();
  /// Adds a key that the query sees.
  void add_forward();
  /// Adds the head's sink.
  void add_sink(double sink);
  void end_forward();
  /// Begins dq of the row, after its forward has ended.
  void begin_backward();
  void add_backward();
  void end_backward();

  // Valid after forward has ended.
  std::span<const double> attention() const { return part(5); }
  double logsumexp() const { return logsumexp_; }
  double attention_bound() const { return attention_bound_; }  // of |run - attention| of every element
  double logsumexp_bound() const { return logsumexp_bound_; }
  // Valid after backward has ended.
  std::span<const double> query_gradient() const { return part(6); }
  double query_gradient_bound() const { return query_gradient_bound_; }

 private:
  std::span<double> part(std::int64_t i) const { return memory_.subspan(static_cast<std::size_t>(i * D_), D_); }
  /// Returns the shares of O or of dq by class, [classes, D]; after them come those of l, [classes].
  double* class_shares(std::int64_t which) const { return memory_.data() + (8 + which) * D_; }
  double* class_sums() const { return class_shares(classes); }
  /// A key's score, and its slope as a function of scale q.k.
  struct Score {
    double value = 0, slope = 1;
  };
  Score score_of(double product) const;
  /// Rescales the sums for a score that is much larger than all earlier ones.
  void rescale(double score);
  /// Returns the class of a key with this score.
  std::int64_t class_of(double score) const;
  /// Returns e[j] without r.
  double relative_error(double score, double products) const;
  /// Returns the root of the sum of the classes' squares, for the element where it is largest.
  double largest_of_classes() const;
  void begin_sums();
  /// Counts a key that was added to a part's sums, and records from time to time how large these are.
  void count_key(std::int64_t sums);
  /// Returns u sqrt(n) times the largest intermediate sum.
  double error_of_adding(std::int64_t sums);

  std::span<double> memory_;
  std::size_t D_ = 0;
  double scale_ = 1, softcap_ = 0;
  double sums_ = 0, stored_ = 0, products_ = 0;  // unit roundoffs u, w, r
  std::int64_t keys_ = 0;                        // added so far
  double largest_sum_ = 0;                       // of any element, so far
  double base_ = 0, sum_ = 0;                    // l, the sum of exp(s - base)
  double logsumexp_ = 0, logsumexp_error_ = 0;   // the error without the factor 8
  double delta_ = 0, delta_error_ = 0;
  double attention_bound_ = 0, logsumexp_bound_ = 0, query_gradient_bound_ = 0;
};

}  // namespace ringtrain
