// A view of a tensor that is only read: what the inputs of kernels are. Every TensorView and every Tensor is one, but
// none becomes a TensorView again, so what is an input in one place cannot be handed on as an output in another.
#pragma once

#include <utility>

#include "framework/error.h"
#include "framework/tensor.h"

namespace ringtrain {

class ConstTensorView {
 public:
  ConstTensorView() = default;
  ConstTensorView(const TensorView& view)  // NOLINT(google-explicit-constructor): reading is always allowed
      : data(view.data), shape(view.shape), dtype(view.dtype), device(view.device) {}
  ConstTensorView(const Tensor& tensor) : ConstTensorView(tensor.view()) {}  // NOLINT(google-explicit-constructor)

  const void* data = nullptr;
  Shape shape;
  DType dtype = DType::float32;
  Device device;

  bool empty() const { return data == nullptr; }
  std::int64_t numel() const { return shape.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(shape.numel()) * size_of(dtype); }
  std::int64_t dim(int index) const { return shape[index]; }

  /// Returns the data as const T*; an internal Error if T is not the dtype. On device memory: a device pointer.
  template <class T>
  const T* as() const {
    ensure(DTypeOf<T>::value == dtype, "tensor read as another type than its own");
    return static_cast<const T*>(data);
  }
  /// As those of TensorView.
  ConstTensorView rows(std::int64_t begin, std::int64_t end) const { return writable().rows(begin, end); }
  ConstTensorView reshape(const Shape& to) const { return writable().reshape(to); }
  ConstTensorView flat(std::int64_t begin, std::int64_t end) const { return writable().flat(begin, end); }
  ConstTensorView flat() const { return reshape({numel()}); }
  ConstTensorView prefix(const Shape& to) const { return writable().prefix(to); }

 private:
  /// What cuts views does not write.
  TensorView writable() const { return {const_cast<void*>(data), shape, dtype, device}; }
};

}  // namespace ringtrain
