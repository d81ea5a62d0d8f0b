// What kernel tests share: vectors filled with counter-based normals, views of them, and the comparison of a tensor
// with its reference, max|difference| / max|reference|. It does not depend on the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "framework/const_tensor_view.h"
#include "framework/random.h"
#include "framework/tensor.h"

namespace ringtrain::testing {

/// Returns n normals with the given stddev; another seed gives other numbers.
template <class T>
std::vector<T> random_vector(std::int64_t n, std::uint64_t seed, double stddev = 1) {
  std::vector<T> x(n);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(stddev * random_normal(seed, Purpose::test, i));
  return x;
}

/// Returns n integers in [0, bound).
inline std::vector<std::int32_t> random_integers(std::int64_t n, std::uint64_t seed, std::uint64_t bound) {
  std::vector<std::int32_t> x(n);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<std::int32_t>(random_below(seed, Purpose::test, i, bound));
  }
  return x;
}

/// Returns a view of a vector, one-dimensional or with a shape: a ConstTensorView for a constant vector or a temporary.
template <class T>
TensorView view_of(std::vector<T>& x, const Shape& shape) {
  ensure(static_cast<std::int64_t>(x.size()) == shape.numel(), "a test's vector has its shape's size");
  return host_view(x.data(), shape);
}
template <class T>
ConstTensorView view_of(const std::vector<T>& x, const Shape& shape) {
  ensure(static_cast<std::int64_t>(x.size()) == shape.numel(), "a test's vector has its shape's size");
  return host_view(x.data(), shape);
}
template <class T>
TensorView view_of(std::vector<T>& x) {
  return view_of(x, {static_cast<std::int64_t>(x.size())});
}
template <class T>
ConstTensorView view_of(const std::vector<T>& x) {
  return view_of(x, {static_cast<std::int64_t>(x.size())});
}

template <class To, class From>
std::vector<To> converted(const std::vector<From>& x) {
  return std::vector<To>(x.begin(), x.end());
}

/// Returns max|x - reference| / max|reference|; 0 if both are all zero or empty, infinity at any NaN.
template <class A, class B>
double relative_difference(const std::vector<A>& x, const std::vector<B>& reference) {
  if (x.size() != reference.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double delta = std::abs(static_cast<double>(x[i]) - static_cast<double>(reference[i]));
    if (std::isnan(delta)) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, delta);
    largest = std::max(largest, std::abs(static_cast<double>(reference[i])));
  }
  return difference == 0 ? 0 : difference / largest;
}

}  // namespace ringtrain::testing
