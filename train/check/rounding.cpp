#include "train/check/rounding.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace ringtrain {

Precision precision_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return {0x1p-53, 0x1p-53};
    case DType::bfloat16:  // sums are float32
      return {0x1p-8, 0x1p-24};
    default:
      return {0x1p-24, 0x1p-24};
  }
}

void Rounding::operator()(reference::Vector& x, std::int64_t terms, reference::Summing summing) const {
  const bool in_double = precision_.sums <= 0x1p-53;
  const bool in_blocks = !in_double && summing == reference::Summing::in_blocks;
  const double n = static_cast<double>(in_blocks ? std::min(terms, block + terms / block) : terms);
  const double theta = enlargement() * (terms == 0 ? precision_.stored : precision_.sums * std::sqrt(n));
  for (double& value : x) {
    // SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators", 2014), as a number in [-1, 1).
    const double known = in_double ? value : static_cast<double>(static_cast<float>(value));
    std::uint64_t z =
        std::bit_cast<std::uint64_t>(known) + (seed_ + static_cast<std::uint64_t>(terms)) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    value *= 1 + theta * (static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1);
  }
}

double rounded_to_bfloat16(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // in [0.5, 1): keep 8 bits of it
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}

std::string bound_text(DType dtype) {
  const Precision precision = precision_of(dtype);
  return fmt::format(
      "bounds: the reference is computed {} more times with random errors as in {} (up to {:.2g} sqrt(n) in a sum of n "
      "products, {:.2g} in a stored value); a tensor's bound is {:g} x the largest change of an element ({:g} x for {} "
      "elements or fewer); mean/bound: its mean error over that error's bound",
      Rounding::tries, name_of(dtype), precision.sums, precision.stored, Rounding::safety, Rounding::safety_of_a_number,
      Rounding::few_elements);
}

}  // namespace ringtrain
