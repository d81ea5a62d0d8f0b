// Attention sinks ("gpt-oss-120b & gpt-oss-20b Model Card", 2025, section 2; Xiao et al., "Efficient Streaming Language
// Models with Attention Sinks", 2023): each head has a learned score that is added to those of a query's keys, and
// whose weight goes to no value. It joins a row after the row's last key, so no attention kernel and no hop of a ring
// needs to know about it: with the row's logsumexp L and the head's sink s, attention_finalize computes L' = log(e^L +
// e^s) and O' = O e^(L - L'). Backward is attention's own with L' for L and delta' = dO.O', and ds = -(the sum over
// rows of e^(s - L') delta').
//
// sinks[H] have the dtype of out; logsumexps, delta, and the sinks' gradient have its accumulator. A row that has seen
// no key has L = -inf: O' = 0, L' = s. No communication: each row belongs to one rank, and gradients are summed like
// all others.
#pragma once

#include "kernels/attention.h"

namespace ringtrain {

/// dsinks[H] += the gradient, from L' and delta'[B, H, T].
void attention_sinks_backward(Stream& stream, const TensorView& dsinks, const ConstTensorView& lse,
                              const ConstTensorView& delta, const ConstTensorView& sinks);

}  // namespace ringtrain
