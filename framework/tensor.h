// Shape, TensorView and Tensor. Tensors are dense and row-major. A Tensor owns its storage and is made by an Allocator;
// a TensorView is a trivially copyable (pointer, shape, dtype, device) that owns nothing and must not outlive it.
// Letters, everywhere the same: B sequences, T local tokens, S tokens of the whole sequence, H query heads, G key/value
// heads, D head size, C width, F feedforward width, V vocabulary, L layers, N ring size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "framework/device.h"
#include "framework/dtype.h"

namespace ringtrain {

/// Up to five dimensions, each >= 0.
class Shape {
 public:
  static constexpr int max_rank = 5;
  constexpr Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int dim) const { return dims_[dim]; }
  /// Returns the number of elements; 1 for rank 0. Error(usage) if it has no 63-bit number.
  std::int64_t numel() const;
  /// Returns e.g. "[2, 128, 64]".
  std::string to_string() const;
  /// Returns a copy whose dimension dim is size.
  Shape with(int dim, std::int64_t size) const;
  /// Returns a copy without the first dimension.
  Shape without_first() const;
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, max_rank> dims_{};
  int rank_ = 0;
};

struct TensorView {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::float32;
  Device device;

  bool empty() const { return data == nullptr; }
  std::int64_t numel() const { return shape.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(shape.numel()) * size_of(dtype); }
  std::int64_t dim(int index) const { return shape[index]; }

  /// Returns the data as T*; an internal Error if T is not the dtype. On device memory: a device pointer.
  template <class T>
  T* as() const {
    ensure(DTypeOf<T>::value == dtype, "tensor read as another type than its own");
    return static_cast<T*>(data);
  }
  /// Returns rows [begin, end) of the first dimension.
  TensorView rows(std::int64_t begin, std::int64_t end) const;
  /// Returns element `index` of the first dimension, without that dimension.
  TensorView select(std::int64_t index) const;
  /// Returns the same elements under another shape of equal numel.
  TensorView reshape(const Shape& to) const;
  /// Returns elements [begin, end) of the flattened tensor, as rank 1.
  TensorView flat(std::int64_t begin, std::int64_t end) const;
  TensorView flat() const { return reshape({numel()}); }
  /// Returns the leading elements viewed under shape `to`, whose numel must be <= this one's (a buffer used in part).
  TensorView prefix(const Shape& to) const;
};

/// Returns a view of host memory that the caller owns.
template <class T>
TensorView host_view(T* data, const Shape& shape) {
  return {const_cast<std::remove_const_t<T>*>(data), shape, DTypeOf<std::remove_const_t<T>>::value, Device::cpu()};
}

/// Takes back the storage of tensors. framework/allocator.h has the one implementation.
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
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor();

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }
  bool empty() const { return owner_ == nullptr; }
  const Shape& shape() const { return view_.shape; }
  template <class T>
  T* as() const {
    return view_.as<T>();
  }

 private:
  friend class Allocator;
  Tensor(TensorOwner* owner, std::size_t entry, const TensorView& view) : owner_(owner), entry_(entry), view_(view) {}
  TensorOwner* owner_ = nullptr;
  std::size_t entry_ = 0;
  TensorView view_;
};

}  // namespace ringtrain
