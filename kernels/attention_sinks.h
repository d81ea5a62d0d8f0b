// Attention sinks ("gpt-oss-120b & gpt-oss-20b Model Card", 2025, section 2; Xiao et al., "Efficient Streaming Language
// Models with Attention Sinks", 2023): each head has a learned score that stands beside those of a query's keys, and
// whose weight goes to no value. It joins a row whose last key has been met, so no kernel of attention and no hop of a
// ring knows of it: with the row's logsumexp L and the head's sink s, L' = log(e^L + e^s) and O' = O e^(L - L').
// Backward is attention's own with L' for L and delta' = dO.O', and ds = -(the sum over rows of e^(s - L') delta').
//
// sinks[H] have the dtype of out; logsumexps, delta and the sinks' gradient its accumulator. A row that has seen no key
// has L = -inf: O' = 0, L' = s. No communication: each row is of one rank, and gradients are summed as all are.
#pragma once

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// Brings finished rows, out[B, T, H, D] and lse[B, H, T], to O' and L'.
void attention_sinks_forward(Stream& stream, const TensorView& out, const TensorView& lse,
                             const ConstTensorView& sinks);

/// dsinks[H] += the gradient, from L' and delta'[B, H, T].
void attention_sinks_backward(Stream& stream, const TensorView& dsinks, const ConstTensorView& lse,
                              const ConstTensorView& delta, const ConstTensorView& sinks);

}  // namespace ringtrain
