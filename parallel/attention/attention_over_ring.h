// Attention over tokens that are distributed over ranks, on the caller's own memory: the interface for programs with
// their own tensors, layers, and optimizer. Each rank has a part of every sequence: contiguous, striped, zigzag, or a
// list of positions in at most 16 evenly spaced pieces. Keys and values are sent around the ring
// (parallel/ring/ring.h); the result is exact attention over all of them (Liu et al., "Ring Attention with Blockwise
// Transformers", 2023).
//
// B sequences, T tokens of this rank in each, H query heads, G key/value heads (H % G == 0), D head size. Tensors are
// dense and row-major. A query sees a key of the same document if their positions allow it (AttentionMask).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/const_tensor_view.h"
#include "framework/device.h"
#include "framework/dtype.h"
#include "framework/sequence/segments.h"
#include "framework/tensor.h"
#include "parallel/communicator.h"

namespace ringtrain {

/// The common options of the calls of one AttentionOverRing. All ranks must give the same, except for T, threads, and
/// timeout_seconds.
struct AttentionOverRingOptions {
  std::int64_t B = 1;
  std::int64_t T = 0;  // the most tokens of a sequence that this rank will have
  std::int64_t H = 1, G = 1, D = 64;
  DType dtype = DType::float32;  // of all tensors except lse: float32 or bfloat16, on a CPU also float64
  Device device = Device::cpu();
  double scale = 0;             // of the scores; 0: 1 / sqrt(D)
  bool backward = true;         // false: no memory for it
  bool deterministic = true;    // false: a GPU may add dq in any order
  int threads = 0;              // that compute in this rank; 0: the available cores, divided by the ranks
  double timeout_seconds = 60;  // that this rank's GPU may wait for others, if NCCL connects them (code 6)
};

/// One rank's attention over a ring. The constructor allocates everything: about 6 tensors of the size of k; with
/// backward, 8 more in the accumulator of dtype; for bfloat16, also a float32 tensor of the size of q. Nothing grows
/// with the whole sequence. Used by one thread, that of its rank. Calls that communicate are collective: all ranks make
/// them in the same order. Every call throws Error(usage) with the caller's line if a tensor does not fit, and
/// Error(rank) if another rank fails.
class AttentionOverRing {
 public:
  /// Collective: splits communicators off `ranks`, which must outlive this object. Throws Error(usage) if the ranks'
  /// options differ or are invalid.
  AttentionOverRing(Communicator& ranks, const AttentionOverRingOptions& options);
  ~AttentionOverRing();
  AttentionOverRing(const AttentionOverRing&) = delete;
  AttentionOverRing& operator=(const AttentionOverRing&) = delete;

  /// Sets the positions of this rank's tokens, until the next call; for all layers of a step at once. Collective.
  /// positions[T]: in the whole sequence, increasing, from 0; the same for all B sequences; no two ranks may have the
  /// same position. They must form at most 16 pieces, each with a constant distance below 2^20 between its tokens, as
  /// those of `shard_positions` do; fewer are faster. documents[B * T]: ids that do not decrease along a sequence's
  /// positions; if empty, each sequence is one document. Both are on the host, and are copied.
  void set_tokens(std::span<const std::int64_t> positions, std::span<const std::int32_t> documents,
                  const AttentionMask& mask, const CallerLine& line = CallerLine::current());

  /// out[B, T, H, D] = softmax(scale q k^T + mask) v; lse[B, H, T] = the logsumexp of each query's scores, in the
  /// accumulator of dtype. q[B, T, H, D], k[B, T, G, D], v[B, T, G, D]. A query that sees no key has out = 0 and lse =
  /// -inf. out and lse must not share memory with other arguments. Collective. On a GPU, the inputs must be complete
  /// before the call, and the outputs are complete when it returns.
  void forward(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out,
               const TensorView& lse, const CallerLine& line = CallerLine::current());

  /// dq[B, T, H, D], dk[B, T, G, D], dv[B, T, G, D] = the gradients of a loss whose gradient with respect to out is
  /// dout[B, T, H, D]; their content is replaced, and they must not share memory with other arguments. out and lse are
  /// those of forward, over all ranks. Dao et al., FlashAttention-2, 2023, Algorithm 2. Collective.
  void backward(const ConstTensorView& dout, const ConstTensorView& q, const ConstTensorView& k,
                const ConstTensorView& v, const ConstTensorView& out, const ConstTensorView& lse, const TensorView& dq,
                const TensorView& dk, const TensorView& dv, const CallerLine& line = CallerLine::current());

  /// Returns the bytes that it has allocated on its device.
  std::size_t bytes() const;
  /// Leaves the communicators in an orderly way when the work is done: collective, and the last call. Required on GPUs
  /// that NCCL connects.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the positions of a rank's tokens in a sequence of `length` tokens, increasing, by layout (shard_segments).
std::vector<std::int64_t> shard_positions(Layout layout, std::int64_t length, int ranks, int rank,
                                          const CallerLine& line = CallerLine::current());

}  // namespace ringtrain
