// What the ring shows: a block of keys and values, or a part of one, and who is shown it.
#pragma once

#include <cstdint>
#include <functional>

#include "framework/const_tensor_view.h"
#include "kernels/attention.h"

namespace ringtrain {

/// Keys and values of one shard. In backward it may be a part of them (parallel/ring/ring_parts.h): some tokens, or the
/// `sequences` sequences from first_sequence on; of the queries, those of the same sequences meet it.
struct RingBlock {
  int owner = 0;
  int hop = 0;
  bool first = false, last = false;  // of the blocks, or parts, that this rank meets in the pass
  std::int64_t first_sequence = 0, sequences = 0;
  std::int64_t pairs = 0;       // of a query of this rank and a key of this block that see each other
  ConstTensorView k, v;         // [sequences, tokens, G, D]
  TensorView dk = {}, dv = {};  // backward: the running sums that the visitor adds to, in place,
  bool accumulate = true;       // or begins, whatever they hold, if not accumulate
  AttentionTokens tokens;

  /// Returns what x [B, ...] has of its sequences, or nothing of nothing.
  template <class View>
  View sequences_of(const View& x) const {
    return x.empty() ? x : x.rows(first_sequence, first_sequence + sequences);
  }
};

/// Called for each block, or part of one, that this rank's queries meet.
using RingVisitor = std::function<void(const RingBlock&)>;

}  // namespace ringtrain
