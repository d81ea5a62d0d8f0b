// The model's end: final norm, head (times a factor, under a softcap, where the model has them) and cross-entropy, a
// chunk of tokens at a time, so that logits exist for one chunk only. The gradient is made in the same pass, in place
// of the logits, and goes straight on to the weights and to the residual stream: the head has no backward of its own.
// Weights of a tied head are the token embedding's.
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
  /// tokens: the most of a micro-batch. Scratch (Tag::workspace) for min(loss_chunk, tokens): V + 2 C + norm statistics
  /// and one double a token.
  Head(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape, std::int64_t tokens,
       ParameterStore& parameters, const ModelIds& ids);

  /// Forward and backward: adds to the loss sum and to the weights' gradients; dx[n, C] = the gradient of x[n, C].
  void train(Stream& stream, const DeviceBatch& batch, const ConstTensorView& x, const TensorView& dx,
             double denominator);
  /// Forward: adds to the loss sum. nll: empty, or float64 [n] on the host that receives each token's when the
  /// stream has got here.
  void evaluate(Stream& stream, const DeviceBatch& batch, const ConstTensorView& x, const TensorView& nll);

  /// Takes part in the gathers of a call of the other ranks that this one does not make.
  void hold_weights() const { const Weights weights(*this); }

  /// Returns a pass over the logits of x[n, C], which must outlive it: it holds the weights.
  LogitsPass begin_logits(Stream& stream, const ConstTensorView& x) const;

  /// Returns the sum of weight * nll since the last call, and reset it.
  double take_loss_sum(Stream& stream);
  /// The same into sum: float64 [1] of the host, to be read when the stream has got here.
  void take_loss_sum(Stream& stream, const TensorView& sum);
  void forget_loss_sum() { loss_sum_is_set_ = false; }

 private:
  struct Chunk {
    std::int64_t begin, end;
    TensorView normed, statistics, logits, nll;
  };
  /// What a pass holds of the weights: a tied head's own are the embedding's.
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
  /// Fills logits and nll; with gradient: logits becomes its own.
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
  bool loss_sum_is_set_ = false;  // else what is there does not count: a constructor touches no tensor
};

}  // namespace ringtrain
