// What kernels/attention.cpp calls on a CPU, and what its passes share: one call's typed pointers, tile sizes, and the
// workspace. Shapes were checked by the caller.
#pragma once

#include <cstdint>

#include "framework/stream.h"
#include "kernels/attention.h"
#include "kernels/cpu/attention_gemm.h"
#include "kernels/cpu/attention_tiles.h"

namespace ringtrain::cpu {

/// Tile sizes are part of the numbers (they fix the order of sums), the same on every machine; but for those of queries
/// in forward, whose rows know nothing of each other. Multiples of every panel width. Measured: bench/results/cpu.md.
inline constexpr std::int64_t forward_query_tile = 256, forward_query_tile_of_few = 128, forward_key_tile = 256;
inline constexpr std::int64_t backward_query_tile = 64, backward_key_tile = 128;

template <class T>
struct ForwardCall {
  AttentionShape shape;
  std::int64_t Tq, Tk;
  const T *q, *k, *v;                                   // [B, Tq, H, D], [B, Tk, G, D] twice
  const std::int32_t *query_documents, *key_documents;  // [B, Tq], [B, Tk]; null: one document
  TileList queries, keys;
  T *o, *m, *l;  // [B, Tq, H, D], [B, H, Tq] twice
};

template <class T>
struct BackwardCall {
  AttentionShape shape;
  std::int64_t Tq, Tk;
  const T *q, *k, *v, *dout, *lse, *delta;              // q, dout [B, Tq, H, D]; k, v [B, Tk, G, D]; [B, H, Tq]
  const std::int32_t *query_documents, *key_documents;  // [B, Tq], [B, Tk]; null: one document
  TileList queries, keys;
  T *dq, *dk, *dv;  // as q, k, v
};

/// Scratch of one worker, in bytes; and the counters of the whole backward call.
template <class T>
std::size_t forward_scratch_bytes(std::int64_t D);
template <class T>
std::size_t backward_scratch_bytes(std::int64_t D);
std::size_t backward_counter_bytes(const AttentionShape& shape, std::int64_t Tk);

/// workspace: 64-byte aligned; [workers * forward_scratch_bytes] or [counters, workers * backward_scratch_bytes].
template <class T>
void attention_forward(ThreadPool& pool, const ForwardCall<T>& call, std::byte* workspace);
template <class T>
void attention_backward(ThreadPool& pool, const BackwardCall<T>& call, std::byte* workspace);

void attention_reset(ThreadPool& pool, const AttentionState& state);
void attention_finish(ThreadPool& pool, const AttentionState& state, const TensorView& out, const TensorView& lse);
void attention_delta(ThreadPool& pool, const TensorView& delta, const TensorView& dout, const TensorView& out);

}  // namespace ringtrain::cpu
