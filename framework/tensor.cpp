#include "framework/tensor.h"

#include <utility>

namespace ringtrain {

Shape::Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) {
  ensure(dims.size() <= max_rank, "a shape has at most five dimensions");
  for (std::int64_t dim : dims) {
    ensure(dim >= 0, "a dimension is not negative");
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
  // A plan that wrapped around would look as if it fitted.
  if (overflow) fail(ExitCode::usage, "a tensor of shape {} has more elements than can be counted", to_string());
  return product;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string(dims_[i]);
  return text + "]";
}

Shape Shape::with(int dim, std::int64_t size) const {
  ensure(dim >= 0 && dim < rank_ && size >= 0, "Shape::with needs a dimension that exists");
  Shape result = *this;
  result.dims_[dim] = size;
  return result;
}

Shape Shape::without_first() const {
  ensure(rank_ > 0, "Shape::without_first needs a dimension");
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

TensorView TensorView::rows(std::int64_t begin, std::int64_t end) const {
  ensure(shape.rank() > 0 && begin >= 0 && begin <= end && end <= shape[0], "rows outside the tensor");
  const std::int64_t row = shape[0] ? numel() / shape[0] : 0;
  return offset(*this, begin * row, shape.with(0, end - begin));
}

TensorView TensorView::select(std::int64_t index) const {
  return rows(index, index + 1).reshape(shape.without_first());
}

TensorView TensorView::reshape(const Shape& to) const {
  ensure(to.numel() == numel(), "reshape keeps the number of elements");
  return offset(*this, 0, to);
}

TensorView TensorView::flat(std::int64_t begin, std::int64_t end) const {
  ensure(begin >= 0 && begin <= end && end <= numel(), "elements outside the tensor");
  return offset(*this, begin, {end - begin});
}

TensorView TensorView::prefix(const Shape& to) const {
  ensure(to.numel() <= numel(), "the buffer is smaller than the view asked of it");
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
