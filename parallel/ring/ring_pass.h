// One pass of one layer through the ring, forward or backward: what is posted, waited for, and passed to the visitor at
// each hop. Made for the pass, on the stack. Communicates over the ring's two communicators.
#pragma once

#include <functional>

#include "parallel/communicator.h"
#include "parallel/ring/ring_batch.h"
#include "parallel/ring/ring_block.h"
#include "parallel/ring/ring_buffers.h"
#include "parallel/ring/ring_times.h"

namespace ringtrain {

/// What the passes of a ring share; null communicators: a ring of one.
struct RingResources {
  Communicator* keys = nullptr;       // keys, values, and document ids
  Communicator* gradients = nullptr;  // dk and dv
  const RingBuffers& buffers;
  RingBatch& batch;
  RingTimes& times;
};

/// The tensors of a pass: this rank's own kv and, in backward, dkv [2, B, T, G, D]; document ids int32 [B, T], or
/// empty.
struct RingTensors {
  TensorView kv, documents, dkv;
  bool backward = false;
};

/// Passes every block to the visitor, in the order of hops. overlap: runs while the last gradients return; may be
/// empty. Throws the first error of any rank.
void run_ring_pass(Stream& stream, int layer, const RingResources& ring, const RingTensors& tensors,
                   const RingVisitor& visitor, const std::function<void()>& overlap);

}  // namespace ringtrain
