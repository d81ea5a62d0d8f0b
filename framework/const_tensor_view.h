// A view of a tensor that is only read, such as the input of a kernel. Every TensorView and every Tensor converts to
// one, but not back, so an input of one function cannot become an output of another.
#pragma once

#include "framework/error.h"
#include "framework/tensor.h"

namespace ringtrain {

class ConstTensorView : public ViewOf<const void> {
 public:
  ConstTensorView() = default;
  /// Views the same memory.
  ConstTensorView(const TensorView& view)  // NOLINT(google-explicit-constructor): reading is always allowed
      : ViewOf{view.data, view.shape, view.dtype, view.device} {}
  /// Views all of a tensor, which must outlive it.
  ConstTensorView(const Tensor& tensor) : ConstTensorView(tensor.view()) {}  // NOLINT(google-explicit-constructor)

  /// Returns rows [begin, end) of the first dimension.
  ConstTensorView rows(std::int64_t begin, std::int64_t end, const CallerLine& line = CallerLine::current()) const {
    return writable().rows(begin, end, line);
  }
  /// Returns the same elements under another shape of equal numel.
  ConstTensorView reshape(const Shape& to, const CallerLine& line = CallerLine::current()) const {
    return writable().reshape(to, line);
  }
  /// Returns elements [begin, end) of the flattened tensor, as rank 1.
  ConstTensorView flat(std::int64_t begin, std::int64_t end, const CallerLine& line = CallerLine::current()) const {
    return writable().flat(begin, end, line);
  }
  /// Returns all elements, as rank 1.
  ConstTensorView flat() const { return reshape({numel()}); }
  /// Returns the leading elements viewed under shape `to`, whose numel must be <= this one's.
  ConstTensorView prefix(const Shape& to, const CallerLine& line = CallerLine::current()) const {
    return writable().prefix(to, line);
  }

 private:
  /// Views are cut by TensorView's functions, which do not write.
  TensorView writable() const { return {const_cast<void*>(data), shape, dtype, device}; }
};

/// Returns a view of constant host memory that the caller owns.
template <class T>
ConstTensorView host_view(const T* data, const Shape& shape) {
  ConstTensorView view;
  view.data = data;
  view.shape = shape;
  view.dtype = DTypeOf<T>::value;
  view.device = Device::cpu();
  return view;
}

}  // namespace ringtrain
