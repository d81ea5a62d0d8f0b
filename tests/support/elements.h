// The elements of a host tensor of any dtype as numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/const_tensor_view.h"
#include "kernels/cpu/attention_simd.h"

namespace ringtrain::testing {

/// Sets an element to a number, rounded.
inline void set_element(const TensorView& x, std::int64_t i, double value) {
  if (x.dtype == DType::int32) {
    x.as<std::int32_t>()[i] = static_cast<std::int32_t>(value);
  } else {
    dispatch_dtype(x.dtype, [&]<class S, class A>() { x.as<S>()[i] = cpu::rounded_to<S>(static_cast<A>(value)); });
  }
}
inline double element(const ConstTensorView& x, std::int64_t i) {
  return dispatch_dtype(x.dtype, [&]<class S, class A>() { return static_cast<double>(widened(x.as<S>()[i])); });
}
inline std::vector<double> elements(const ConstTensorView& x) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < x.numel(); ++i) values.push_back(element(x, i));
  return values;
}

}  // namespace ringtrain::testing
