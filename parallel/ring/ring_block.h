// What the ring passes to its visitor: a block of keys and values, or a part of one.
#pragma once

#include <cstdint>
#include <functional>

#include "framework/const_tensor_view.h"
#include "kernels/attention.h"

namespace ringtrain {

/// Keys and values of one shard. In backward it may be a part of them (parallel/ring/ring_parts.h): some tokens, or
/// `sequences` sequences from first_sequence; the queries of the same sequences meet it.
struct RingBlock {
  int owner = 0;
  int hop = 0;
  bool first = false, last = false;  // among the blocks, or parts, that this rank meets in the pass
  std::int64_t first_sequence = 0, sequences = 0;
  std::int64_t pairs = 0;       // visible pairs of a query of this rank and a key of this block
  ConstTensorView k, v;         // [sequences, tokens, G, D]
  TensorView dk = {}, dv = {};  // backward: the running sums to which the visitor adds, in place,
  bool accumulate = true;       // or which it sets, ignoring their content, if not accumulate
  AttentionTokens tokens;

  /// Returns the part of x [B, ...] for its sequences; an empty view for an empty one.
  template <class View>
  View sequences_of(const View& x) const {
    return x.empty() ? x : x.rows(first_sequence, first_sequence + sequences);
  }
};

/// Called for each block, or part of one, that this rank's queries meet.
using RingVisitor = std::function<void(const RingBlock&)>;

}  // namespace ringtrain
