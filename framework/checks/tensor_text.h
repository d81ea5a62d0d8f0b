// Describes where two tensors differ. Takes host memory of any dtype and compares numbers as doubles. For tests and
// comparisons of dumps (framework/dump). Tensors of different shapes are an Error(usage) that names the caller's line.
#pragma once

#include <cstdint>
#include <string>

#include "framework/const_tensor_view.h"

namespace ringtrain {

/// Returns the indices of an element that is given by its index in the flattened tensor, e.g. "[1, 0]".
std::string location_text(const Shape& shape, std::int64_t element);

/// Two elements differ if they are further apart than the larger of these.
struct Tolerance {
  double relative = 0;  // to the tensor's maximum
  double absolute = 0;
};

/// How two tensors of one shape differ. NaN equals only NaN, and an infinity equals only an infinity of its sign.
struct TensorComparison {
  std::int64_t differing = 0;  // elements
  std::int64_t first = -1;     // index of the first of them in the flattened tensor; -1: none
  double a = 0, b = 0;         // the values of that element
  double maximum = 0;          // the largest finite |element| of both tensors
  double greatest = 0;         // the largest |a - b|; infinity if one of them is not finite and the other differs

  /// Returns a difference as a fraction of the maximum; 0 for none.
  double relative(double difference) const { return difference == 0 ? 0 : difference / maximum; }
};

/// Compares two tensors of equal shapes, which may differ in dtype.
TensorComparison compare_tensors(const ConstTensorView& a, const ConstTensorView& b, const Tolerance& tolerance = {},
                                 const CallerLine& line = CallerLine::current());

}  // namespace ringtrain
