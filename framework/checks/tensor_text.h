// Tensors for people: a TensorView as text, and where two of them differ. Host memory of any dtype; numbers are
// compared as double. For tests, debuggers and comparisons of dumps (framework/dump). Tensors that do not fit are an
// Error(usage) that names the caller's line.
#pragma once

#include <cstdint>
#include <string>

#include "framework/const_tensor_view.h"

namespace ringtrain {

/// Returns dtype, shape and elements, e.g. "float32 [2, 2]\n[[1, 2],\n [3, 4]]". Of a dimension that is longer than
/// `max_shown`, only its ends are shown.
std::string to_text(const ConstTensorView& x, std::int64_t max_shown = 8,
                    const CallerLine& line = CallerLine::current());

/// Returns the place of an element that is counted through the flattened tensor, e.g. "[1, 0]".
std::string place_text(const Shape& shape, std::int64_t element);

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

/// Returns where the tensors first differ, in a sentence with place, values and counts; "" if they agree. Tensors of
/// two shapes differ.
std::string first_difference(const ConstTensorView& a, const ConstTensorView& b, const Tolerance& tolerance = {},
                             const CallerLine& line = CallerLine::current());

}  // namespace ringtrain
