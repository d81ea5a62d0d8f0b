#include "layers/lora.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "layers/activations.h"

namespace ringtrain {

LoraWorkspace::LoraWorkspace(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape) {
  // Small next to a rank's other memory, and enough for products with so few columns; matmul.h adds blocks of 256
  // tokens.
  constexpr std::int64_t most_tokens = 4096;
  if (!spec.lora.on()) return;
  scale_ = spec.lora.scale();
  hidden_ = allocator.make(Tag::workspace, "adapter hidden", shape.dtype,
                           {std::min(most_tokens, Activations::max_batch_tokens(shape)), spec.lora.rank});
}

template <class Body>
void Lora::for_tokens(std::int64_t n, const Body& body) const {
  if (a_ < 0) return;
  for (std::int64_t begin = 0; begin < n; begin += workspace_->tokens()) {
    const std::int64_t end = std::min(n, begin + workspace_->tokens());
    body(begin, end, workspace_->hidden(end - begin));
  }
}

void Lora::reduce(Stream& stream, const TensorView& hidden, const ConstTensorView& x) const {
  linear_forward(stream, hidden, x, parameters_->weight(a_), {});
  scale(stream, hidden, workspace_->scale());
}

void Lora::reduce_gradient(Stream& stream, const TensorView& hidden, const ConstTensorView& dy) const {
  linear_backward_input(stream, hidden, dy, parameters_->weight(b_), /*accumulate=*/false);
  scale(stream, hidden, workspace_->scale());
}

void Lora::forward(Stream& stream, const TensorView& y, const ConstTensorView& x) const {
  for_tokens(x.dim(0), [&](std::int64_t begin, std::int64_t end, const TensorView& hidden) {
    const TensorView rows = y.rows(begin, end);
    reduce(stream, hidden, x.rows(begin, end));
    linear_forward(stream, rows, hidden, parameters_->weight(b_), {}, /*residual=*/rows);
  });
}

void Lora::backward_input(Stream& stream, const TensorView& dx, const ConstTensorView& dy) const {
  for_tokens(dx.dim(0), [&](std::int64_t begin, std::int64_t end, const TensorView& hidden) {
    reduce_gradient(stream, hidden, dy.rows(begin, end));
    linear_backward_input(stream, dx.rows(begin, end), hidden, parameters_->weight(a_), /*accumulate=*/true);
  });
}

void Lora::backward_weight(Stream& stream, const ConstTensorView& dy, const ConstTensorView& x) const {
  for_tokens(x.dim(0), [&](std::int64_t begin, std::int64_t end, const TensorView& hidden) {
    const ConstTensorView dy_rows = dy.rows(begin, end), x_rows = x.rows(begin, end);
    const auto add = [&](int id, const ConstTensorView& gradient, const ConstTensorView& input) {
      const bool accumulate = parameters_->begin_gradient(id);
      linear_backward_weight(stream, parameters_->gradient(id), {}, gradient, input, accumulate);
    };
    reduce(stream, hidden, x_rows);
    add(b_, dy_rows, hidden);
    reduce_gradient(stream, hidden, dy_rows);
    add(a_, hidden, x_rows);
  });
}

}  // namespace ringtrain
