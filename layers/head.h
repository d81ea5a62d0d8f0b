// The model's end: final norm, head (times a factor and under a softcap, if the model has them), and cross-entropy, a
// chunk of tokens at a time, so that only one chunk's logits exist. The same pass computes the gradient in place of the
// logits and passes it to the weights and the residual stream right away: the head has no separate backward. A tied
// head's weights are the token embedding's.
#pragma once

#include <optional>

#include "framework/const_tensor_view.h"
#include "layers/device_batch.h"
#include "layers/linear.h"
#include "layers/logits_pass.h"
#include "layers/norm.h"

namespace ringtrain {

class Head {
 public:
  /// tokens: the largest number in a micro-batch. Scratch (Tag::workspace) for min(loss_chunk, tokens): V + 2 C + norm
  /// statistics and one double per token.
  Head(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape, std::int64_t tokens,
       ParameterStore& parameters, const ModelIds& ids);

  /// Runs forward and backward: adds to the loss sum and to the weights' gradients; dx[n, C] = the gradient of x[n, C].
  void train(Stream& stream, const DeviceBatch& batch, const ConstTensorView& x, const TensorView& dx,
             double denominator);
  /// Runs forward: adds to the loss sum. nll: empty, or float64 [n] on the host that receives each token's value when
  /// the stream has reached this point.
  void evaluate(Stream& stream, const DeviceBatch& batch, const ConstTensorView& x, const TensorView& nll);

  /// Takes part in the other ranks' gathers for a call that this rank does not make.
  void hold_weights() const { const Weights weights(*this); }

  /// Returns a pass over the logits of x[n, C], which must outlive it: the pass holds the weights.
  LogitsPass begin_logits(Stream& stream, const ConstTensorView& x) const;

  /// Returns the sum of weight * nll since the last call, and resets it.
  double take_loss_sum(Stream& stream);
  /// Writes the same into sum, float64 [1] on the host, which is valid when the stream has reached this point.
  void take_loss_sum(Stream& stream, const TensorView& sum);
  void forget_loss_sum() { loss_sum_is_set_ = false; }

 private:
  struct Chunk {
    std::int64_t begin, end;
    TensorView normed, statistics, logits, nll;
  };
  /// The weights that a pass holds: a tied head's matrix is the embedding's.
  struct Weights {
    explicit Weights(const Head& head) : norm(*head.parameters_, head.bucket_) {
      if (head.tied_) embedding.emplace(*head.parameters_, 0);
    }
    WeightsGuard norm;
    std::optional<WeightsGuard> embedding;
  };
  /// Fills c.logits.
  void project(Stream& stream, const ConstTensorView& x, const Chunk& c) const;
  Chunk chunk_from(std::int64_t begin, std::int64_t tokens) const;
  /// Fills logits and nll; with gradient, logits is overwritten with its own gradient.
  void forward(Stream& stream, const DeviceBatch& batch, const ConstTensorView& x, const Chunk& c, double denominator,
               bool gradient);

  ParameterStore* parameters_;
  int bucket_;
  bool tied_;
  Norm norm_;
  Linear head_;
  std::int64_t chunk_;
  double factor_, softcap_;  // of logits
  Tensor logits_, normed_, normed_gradient_, statistics_, nll_, loss_sum_;
  bool loss_sum_is_set_ = false;  // false: the sum's contents do not count yet, because a constructor writes no tensor
};

}  // namespace ringtrain
