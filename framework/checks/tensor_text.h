// Where two tensors differ, for people. Host memory of any dtype; numbers are compared as double. For tests and
// comparisons of dumps (framework/dump). Tensors that do not fit are an Error(usage) that names the caller's line.
#pragma once

#include <cstdint>
#include <string>

#include "framework/const_tensor_view.h"

namespace ringtrain {

/// Returns the place of an element that is counted through the flattened tensor, e.g. "[1, 0]".
std::string location_text(const Shape& shape, std::int64_t element);

/// Two elements differ if they are further apart than the larger of these.
struct Tolerance {
  double relative = 0;  // to the tensor's maximum
  double absolute = 0;
};

/// What two tensors of one shape have between them. NaN equals NaN and nothing else, infinity its like.
struct TensorComparison {
  std::int64_t differing = 0;  // elements
  std::int64_t first = -1;     // the first of them, counted through the flattened tensor; -1: none
  double a = 0, b = 0;         // its two values
  double maximum = 0;          // the largest finite |element| of both tensors
  double greatest = 0;         // the largest |a - b|; infinity where one is no finite number and the other differs

  /// Returns a difference as a part of the maximum; 0 for none.
  double relative(double difference) const { return difference == 0 ? 0 : difference / maximum; }
};

/// Compares two tensors of equal shapes, which may differ in dtype.
TensorComparison compare_tensors(const ConstTensorView& a, const ConstTensorView& b, const Tolerance& tolerance = {},
                                 const CallerLine& line = CallerLine::current());

}  // namespace ringtrain
