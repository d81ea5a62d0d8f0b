// How far a run's rounding may move its numbers from the exact ones. A sum of n products computed with unit roundoff u
// is the exact sum of products, each changed by a relative theta, with |theta| <= u sqrt(n) except with small
// probability (Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", 2019, theorem 2.4); storing
// a tensor changes each element by at most u. With blocks of b, n becomes b + n / b (Blanchard, Higham and Mary, "A
// Class of Fast and Accurate Summation Algorithms", 2020, section 3), and this file uses that for long sums of matrix
// products. In double it stays n, because the reference's own sums are not in blocks. It also stays n in attention,
// whose kernels add token after token: there, the measured error of a sum over S tokens grew as sqrt(S), from 1,024 to
// 32,768 tokens.
//
// So the reference is computed again with every sum's elements changed by up to u sqrt(n), and every stored tensor's
// elements by up to u. The resulting change of a tensor at the end is the change that rounding can cause: through all
// layers, cancellations, and sums in between. A change is a random function of the element's value in the precision of
// the run's sums, just as rounding is a function of the value: equal tokens are rounded alike, and so are exponentials
// of logits that are nearly equal, so their errors add up.
#pragma once

#include <cstdint>
#include <string>

#include "framework/dtype.h"
#include "reference/model.h"

namespace ringtrain {

/// Unit roundoffs of a run: for the tensors that it stores, and for its sums.
struct Precision {
  double stored = 0, sums = 0;
};
Precision precision_of(DType dtype);

class Rounding {
 public:
  /// How many times the reference is changed at random, and the bound of a tensor as a multiple of its largest change.
  static constexpr int tries = 2;
  static constexpr double safety = 8;
  /// The same multiple for a single number, such as the loss: its change is one draw, not a maximum over many. It also
  /// applies to tensors of a few elements, such as the sinks of two heads: for one element, two draws both fall below
  /// an eighth of a third in one of a hundred runs.
  static constexpr double safety_of_a_number = 32;
  static constexpr std::int64_t few_elements = 4;
  static constexpr double safety_of(std::int64_t elements) {
    return elements <= few_elements ? safety_of_a_number : safety;
  }
  static constexpr std::int64_t block = 128;  // of long sums that are taken in blocks

  Rounding(DType dtype, std::uint64_t seed) : precision_(precision_of(dtype)), seed_(seed) {}
  /// Changes x, as reference::Rounds does.
  void operator()(reference::Vector& x, std::int64_t terms, reference::Summing summing) const;
  /// Returns how much larger the changes are than a run's rounding: in double, a run's own would drown in the
  /// reference's.
  double enlargement() const { return precision_.stored < 0x1p-40 ? 0x1p20 : 1; }

 private:
  Precision precision_;
  std::uint64_t seed_;
};

/// Returns a number rounded to bfloat16, ties to even.
double rounded_to_bfloat16(double x);

/// Returns a line for people that says how bounds are derived.
std::string bound_text(DType dtype);

}  // namespace ringtrain
