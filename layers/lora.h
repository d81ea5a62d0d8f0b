// A low-rank adapter of a linear layer (Hu et al., "LoRA", 2021, eq. 3): in addition to a weight W [O, I], which may be
// frozen, there are A [r, I] and B [O, r], and y = x W^T + (alpha / r) (x A^T) B^T. It keeps nothing for backward,
// which recomputes x A^T at a cost of r / O of the layer's own product.
#pragma once

#include "framework/allocator.h"
#include "framework/const_tensor_view.h"
#include "layers/execution_shape.h"
#include "layers/model_parameters.h"

namespace ringtrain {

/// Memory that a model's adapters share: r numbers for each of this many tokens at a time. Empty without adapters.
class LoraWorkspace {
 public:
  LoraWorkspace(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape);
  double scale() const { return scale_; }
  std::int64_t tokens() const { return hidden_.view().dim(0); }
  TensorView hidden(std::int64_t n) const { return hidden_.view().prefix({n, hidden_.view().dim(1)}); }

 private:
  double scale_ = 0;
  Tensor hidden_;  // [tokens, r]
};

class Lora {
 public:
  /// Without an adapter (ids.lora_a < 0), every call does nothing.
  Lora(ParameterStore& parameters, const LinearIds& ids, const LoraWorkspace* workspace)
      : parameters_(&parameters), a_(ids.lora_a), b_(ids.lora_b), workspace_(workspace) {}

  /// y[n, O] += (alpha / r) (x[n, I] A^T) B^T.
  void forward(Stream& stream, const TensorView& y, const ConstTensorView& x) const;
  /// dx[n, I] += (alpha / r) (dy[n, O] B) A.
  void backward_input(Stream& stream, const TensorView& dx, const ConstTensorView& dy) const;
  /// Adds (alpha / r) dy^T (x A^T) to B's gradient, and (alpha / r) (dy B)^T x to A's.
  void backward_weight(Stream& stream, const ConstTensorView& dy, const ConstTensorView& x) const;

 private:
  /// Calls body(begin, end, hidden [end - begin, r]) for chunks of the n tokens that fit in the workspace.
  template <class Body>
  void for_tokens(std::int64_t n, const Body& body) const;
  /// hidden[n, r] = (alpha / r) x A^T.
  void reduce(Stream& stream, const TensorView& hidden, const ConstTensorView& x) const;
  /// hidden[n, r] = (alpha / r) dy B, the gradient of x A^T.
  void reduce_gradient(Stream& stream, const TensorView& hidden, const ConstTensorView& dy) const;

  ParameterStore* parameters_;
  int a_, b_;
  const LoraWorkspace* workspace_;
};

}  // namespace ringtrain
