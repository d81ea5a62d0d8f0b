// How far a run's rounding may take its numbers from exact ones. A sum of n products that is computed with unit
// roundoff u is the exact sum of products each changed by a relative theta, |theta| <= u sqrt(n) but for a small
// probability (Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", 2019, theorem 2.4); storing
// a tensor changes each element by u at most. In blocks of b, n is b + n / b (Blanchard, Higham and Mary, "A Class of
// Fast and Accurate Summation Algorithms", 2020, section 3), and so it is of long sums of matrix products here. In
// double it stays n, as the reference's own sums are not in blocks, and so it does in attention, whose kernels add
// token after token: there the error of a sum over S tokens was seen to grow as sqrt(S), from 1,024 to 32,768 tokens.
//
// So the reference is computed again with every sum's elements changed by up to u sqrt(n), and every stored tensor's by
// up to u. What that does to a tensor at the end is what rounding can do to it: through all layers, cancellations and
// sums that come between. A change is a random function of the element's value in the precision of the run's sums, as
// rounding is a function of it: equal tokens are rounded alike, and so are exponentials of logits that are nearly
// equal, so that their errors add up.
#pragma once

#include <cstdint>
#include <string>

#include "framework/dtype.h"
#include "reference/model.h"

namespace ringtrain {

/// Unit roundoffs of a run: of the tensors that it stores, and of its sums.
struct Precision {
  double stored = 0, sums = 0;
};
Precision precision_of(DType dtype);

class Rounding {
 public:
  /// How many times the reference is changed at random, and how many times the largest change of a tensor its bound is.
  static constexpr int tries = 2;
  static constexpr double safety = 8;
  /// The same of one number, as the loss: its change is one draw, and no maximum over many. So it is of tensors of a
  /// few elements, as the sinks of two heads: of one, two draws fall below an eighth of a third in one of a hundred
  /// runs.
  static constexpr double safety_of_a_number = 32;
  static constexpr std::int64_t few_elements = 4;
  static constexpr double safety_of(std::int64_t elements) {
    return elements <= few_elements ? safety_of_a_number : safety;
  }
  static constexpr std::int64_t block = 128;  // of long sums that are taken in blocks

  Rounding(DType dtype, std::uint64_t seed) : precision_(precision_of(dtype)), seed_(seed) {}
  /// Changes x, as reference::Rounds.
  void operator()(reference::Vector& x, std::int64_t terms, reference::Summing summing) const;
  /// By how much more than a run's rounding the changes are: in double, a run's own would drown in the reference's.
  double enlargement() const { return precision_.stored < 0x1p-40 ? 0x1p20 : 1; }

 private:
  Precision precision_;
  std::uint64_t seed_;
};

/// Returns a number rounded to bfloat16, ties to even.
double rounded_to_bfloat16(double x);

/// Returns how bounds are derived, in a line for people.
std::string bound_text(DType dtype);

}  // namespace ringtrain
