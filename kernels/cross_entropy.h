// Softmax cross-entropy on a chunk of n tokens, whose gradient is computed in the same pass and replaces the logits;
// and a softcap of logits before it ("Gemma 2", 2024, section 2).
#pragma once

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// x = softcap * tanh(x / softcap), softcap > 0. cross_entropy computes the gradient with respect to the original x.
void cap_logits(Stream& stream, const TensorView& x, double softcap);

/// nll[n] (float64) = logsumexp(logits[n]) - logits[n][label]; 0 if the label is -1. If gradient: logits[n, V] becomes
/// (softmax(logits) - onehot(label)) * weights[n] / denominator, 0 if the label is -1 (also when its weight is not 0)
/// or the weight is 0. labels: int32 [n], -1 or in [0, V); on a CPU, others are an Error(internal), and on a GPU,
/// DeviceBatch has checked them. weights: the accumulator of logits' dtype. softcap > 0: cap_logits has made these
/// logits, and the gradient is that of their original values: times 1 - (logit / softcap)^2.
void cross_entropy(Stream& stream, const TensorView& logits, const TensorView& nll, const ConstTensorView& labels,
                   const ConstTensorView& weights, double denominator, bool gradient, double softcap = 0);

/// Stores the sum of values[n] (float64) * weights[n] over labels >= 0 in result[1] (float64), added in a fixed tree.
void weighted_sum(Stream& stream, const TensorView& result, const ConstTensorView& values,
                  const ConstTensorView& weights, const ConstTensorView& labels, bool accumulate);

}  // namespace ringtrain
