// Shape, TensorView, and Tensor. Tensors are dense and row-major. A Tensor owns its storage and is made by an
// Allocator; a TensorView is a trivially copyable (pointer, shape, dtype, device) that owns nothing and must not
// outlive the tensor. A mistake in a call is an Error(usage) that names the caller's line (refuse_call). These letters
// have the same meaning everywhere: B sequences, T local tokens, S tokens of the whole sequence, H query heads, G
// key/value heads, D head size, C width, F feedforward width, V vocabulary, L layers, N ring size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/device.h"
#include "framework/dtype.h"

namespace ringtrain {

/// Up to five dimensions, each >= 0.
class Shape {
 public:
  static constexpr int max_rank = 5;
  constexpr Shape() = default;
  /// Refuses more dimensions than max_rank, and negative ones.
  Shape(std::initializer_list<std::int64_t> dims, const CallerLine& line = CallerLine::current());
  /// The same.
  explicit Shape(std::span<const std::int64_t> dims, const CallerLine& line = CallerLine::current());

  /// Returns the number of dimensions.
  int rank() const { return rank_; }
  /// Returns the size of a dimension, from 0; unchecked.
  std::int64_t operator[](int dim) const { return dims_[dim]; }
  /// Returns the sizes of all dimensions.
  std::vector<std::int64_t> dims() const { return {dims_.begin(), dims_.begin() + rank_}; }
  /// Returns the number of elements; 1 for rank 0. Error(usage) if it does not fit in 63 bits.
  std::int64_t numel() const;
  /// Returns e.g. "[2, 128, 64]".
  std::string to_string() const;
  /// Returns a copy whose dimension dim is size; refuses one that does not exist.
  Shape with(int dim, std::int64_t size, const CallerLine& line = CallerLine::current()) const;
  /// Returns a copy without the first dimension, which must exist.
  Shape without_first(const CallerLine& line = CallerLine::current()) const;
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, max_rank> dims_{};
  int rank_ = 0;
};

/// Throws the error about reading a tensor as elements of another dtype.
[[noreturn]] void refuse_dtype(const Shape& shape, DType dtype, DType wanted, const CallerLine& line);

/// The base of both views. Void: void, or const void if elements are only read.
template <class Void>
struct ViewOf {
  Void* data = nullptr;
  Shape shape;
  DType dtype = DType::float32;
  Device device;

  /// Returns whether it has no memory: it belongs to a plan, or to no tensor.
  bool empty() const { return data == nullptr; }
  /// Returns the number of elements.
  std::int64_t numel() const { return shape.numel(); }
  /// Returns the bytes of all elements.
  std::size_t bytes() const { return static_cast<std::size_t>(shape.numel()) * size_of(dtype); }
  /// Returns the size of a dimension, from 0; unchecked.
  std::int64_t dim(int index) const { return shape[index]; }

  /// Returns the data as T*, or const T*; refuses a T that is not the dtype. On device memory: a device pointer.
  template <class T>
  auto as(const CallerLine& line = CallerLine::current()) const {
    if (DTypeOf<T>::value != dtype) [[unlikely]]
      refuse_dtype(shape, dtype, DTypeOf<T>::value, line);
    return static_cast<std::conditional_t<std::is_const_v<Void>, const T*, T*>>(data);
  }
};

struct TensorView : ViewOf<void> {
  // Parts and other shapes of the same memory; each function refuses a range outside it.
  /// Returns rows [begin, end) of the first dimension.
  TensorView rows(std::int64_t begin, std::int64_t end, const CallerLine& line = CallerLine::current()) const;
  /// Returns element `index` of the first dimension, without that dimension.
  TensorView select(std::int64_t index, const CallerLine& line = CallerLine::current()) const;
  /// Returns the same elements under another shape of equal numel.
  TensorView reshape(const Shape& to, const CallerLine& line = CallerLine::current()) const;
  /// Returns elements [begin, end) of the flattened tensor, as rank 1.
  TensorView flat(std::int64_t begin, std::int64_t end, const CallerLine& line = CallerLine::current()) const;
  /// Returns all elements, as rank 1.
  TensorView flat() const { return reshape({numel()}); }
  /// Returns the leading elements viewed under shape `to`, whose numel must be <= this one's (a buffer used in part).
  TensorView prefix(const Shape& to, const CallerLine& line = CallerLine::current()) const;
};

/// Returns a view of host memory that the caller owns. (Of constant memory: framework/const_tensor_view.h.)
template <class T>
requires(!std::is_const_v<T>) TensorView host_view(T* data, const Shape& shape) {
  return {data, shape, DTypeOf<T>::value, Device::cpu()};
}

/// Takes back the storage of tensors. framework/allocator.h has the only implementation.
class TensorOwner {
 public:
  /// Frees the storage `data` of the owner's entry `entry`.
  virtual void release(std::size_t entry, void* data) = 0;

 protected:
  ~TensorOwner() = default;
};

/// Owns storage; movable, not copyable; returns it to its owner, an Allocator, which must outlive it.
class Tensor {
 public:
  Tensor() = default;
  /// Takes over the storage; the other tensor is empty afterwards.
  Tensor(Tensor&& other) noexcept;
  /// The same; returns its previous storage to its owner.
  Tensor& operator=(Tensor&& other) noexcept;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor();

  /// Returns a view of the whole tensor. The view must not outlive the tensor.
  const TensorView& view() const { return view_; }
  /// The same.
  operator const TensorView&() const { return view_; }
  /// Returns whether it has no storage: no Allocator made it, or it was moved from.
  bool empty() const { return owner_ == nullptr; }
  /// Returns the shape of the whole tensor.
  const Shape& shape() const { return view_.shape; }
  /// Returns the data as T*, as TensorView::as does.
  template <class T>
  T* as(const CallerLine& line = CallerLine::current()) const {
    return view_.as<T>(line);
  }

 private:
  friend class Allocator;
  Tensor(TensorOwner* owner, std::size_t entry, const TensorView& view) : owner_(owner), entry_(entry), view_(view) {}
  TensorOwner* owner_ = nullptr;
  std::size_t entry_ = 0;
  TensorView view_;
};

}  // namespace ringtrain
