#include "framework/tensor.h"

#include <fmt/core.h>

#include <utility>

namespace ringtrain {

Shape::Shape(std::initializer_list<std::int64_t> dims, const CallerLine& line)
    : Shape(std::span(dims.begin(), dims.size()), line) {}

Shape::Shape(std::span<const std::int64_t> dims, const CallerLine& line) {
  if (dims.size() > max_rank) {
    refuse_call(line, fmt::format("a shape has {} dimensions, but may have at most {}", dims.size(), max_rank));
  }
  for (std::int64_t dim : dims) {
    if (dim < 0) refuse_call(line, fmt::format("dimension {} of a shape is {}, but must be 0 or more", rank_, dim));
    dims_[rank_++] = dim;
  }
}

std::int64_t Shape::numel() const {
  std::int64_t product = 1;
  bool overflow = false;
  for (int i = 0; i < rank_; ++i) {
    const std::int64_t dim = dims_[i];
    if (dim == 0) return 0;
    overflow |= __builtin_mul_overflow(product, dim, &product);
  }
  // A plan that overflowed would seem to fit.
  if (overflow) fail(ExitCode::usage, "a tensor of shape {} has more elements than can be counted", to_string());
  return product;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string(dims_[i]);
  return text + "]";
}

Shape Shape::with(int dim, std::int64_t size, const CallerLine& line) const {
  if (dim < 0 || dim >= rank_ || size < 0) {
    refuse_call(line, fmt::format("Shape::with({}, {}) of the shape {}: the dimension must be 0 to {}, the size 0 or "
                                  "more",
                                  dim, size, to_string(), rank_ - 1));
  }
  Shape result = *this;
  result.dims_[dim] = size;
  return result;
}

Shape Shape::without_first(const CallerLine& line) const {
  require_call(rank_ > 0, "Shape::without_first needs a shape with a dimension", line);
  return Shape(std::span(dims_).subspan(1, static_cast<std::size_t>(rank_ - 1)));
}

namespace {
TensorView offset(const TensorView& view, std::int64_t elements, const Shape& shape) {
  TensorView result = view;
  if (view.data)
    result.data = static_cast<char*>(view.data) + elements * static_cast<std::int64_t>(size_of(view.dtype));
  result.shape = shape;
  return result;
}
}  // namespace

void refuse_dtype(const Shape& shape, DType dtype, DType wanted, const CallerLine& line) {
  refuse_call(line, fmt::format("a {} tensor {} is read as {}", name_of(dtype), shape.to_string(), name_of(wanted)));
}

TensorView TensorView::rows(std::int64_t begin, std::int64_t end, const CallerLine& line) const {
  if (shape.rank() == 0 || begin < 0 || begin > end || end > shape[0]) {
    refuse_call(line, fmt::format("a tensor {} has no rows [{}, {})", shape.to_string(), begin, end));
  }
  const std::int64_t row = shape[0] ? numel() / shape[0] : 0;
  return offset(*this, begin * row, shape.with(0, end - begin));
}

TensorView TensorView::select(std::int64_t index, const CallerLine& line) const {
  return rows(index, index + 1, line).reshape(shape.without_first(line), line);
}

TensorView TensorView::reshape(const Shape& to, const CallerLine& line) const {
  if (to.numel() != numel()) {
    refuse_call(line, fmt::format("a tensor {} of {} elements cannot be viewed as {}, which has {}", shape.to_string(),
                                  numel(), to.to_string(), to.numel()));
  }
  return offset(*this, 0, to);
}

TensorView TensorView::flat(std::int64_t begin, std::int64_t end, const CallerLine& line) const {
  if (begin < 0 || begin > end || end > numel()) {
    refuse_call(line, fmt::format("a tensor {} of {} elements has no elements [{}, {})", shape.to_string(), numel(),
                                  begin, end));
  }
  return offset(*this, begin, {end - begin});
}

TensorView TensorView::prefix(const Shape& to, const CallerLine& line) const {
  if (to.numel() > numel()) {
    refuse_call(line, fmt::format("a tensor {} of {} elements is too small to be viewed as {}, which has {}",
                                  shape.to_string(), numel(), to.to_string(), to.numel()));
  }
  return offset(*this, 0, to);
}

Tensor::Tensor(Tensor&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), entry_(other.entry_), view_(std::exchange(other.view_, {})) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this != &other) {
    if (owner_) owner_->release(entry_, view_.data);
    owner_ = std::exchange(other.owner_, nullptr);
    entry_ = other.entry_;
    view_ = std::exchange(other.view_, {});
  }
  return *this;
}

Tensor::~Tensor() {
  if (owner_) owner_->release(entry_, view_.data);
}

}  // namespace ringtrain
