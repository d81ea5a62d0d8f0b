// The CPU functions that kernels/attention.cpp calls, and what they share: one call's typed pointers, tile sizes, and
// the workspace. The caller has checked the shapes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "kernels/attention.h"
#include "kernels/cpu/attention_gemm.h"
#include "kernels/cpu/attention_tiles.h"

namespace ringtrain::cpu {

/// These tile sizes affect the results (they fix the order of sums), so they are the same on every machine. They are
/// multiples of every panel width. Measured: bench/results/cpu.md.
inline constexpr std::int64_t forward_key_tile = 256, backward_query_tile = 64, backward_key_tile = 128;

/// The size of a task does not affect the results: rows of forward are independent, and a task of backward adds to dq
/// in steps of backward_key_tile. Larger tasks pack less, but there must be enough of them for all workers.
inline constexpr std::int64_t max_queries_a_task = 512, max_keys_a_task = 2 * backward_key_tile;

/// rows: tokens times heads of the whole call.
constexpr bool enough_for_large_tasks(std::int64_t rows, int workers) {
  return rows >= 4096 * std::max<std::int64_t>(2, workers);
}
constexpr std::int64_t queries_a_task(std::int64_t rows, int workers) {
  return enough_for_large_tasks(rows, workers) ? max_queries_a_task : rows >= 1024 * workers ? 256 : 128;
}
constexpr std::int64_t keys_a_task(std::int64_t rows, int workers) {
  return enough_for_large_tasks(rows, workers) ? max_keys_a_task : backward_key_tile;
}

/// S: the type of stored values, A: the type of sums (framework/dtype.h).
template <class S, class A>
struct ForwardCall {
  AttentionShape shape;
  std::int64_t Tq, Tk;
  const S *q, *k, *v;                                   // [B, Tq, H, D], [B, Tk, G, D] twice
  const std::int32_t *query_documents, *key_documents;  // [B, Tq], [B, Tk]; null: one document
  TileList queries, keys;
  A *o, *m, *l;  // [B, Tq, H, D], [B, H, Tq] twice
};

template <class S, class A>
struct BackwardCall {
  AttentionShape shape;
  std::int64_t Tq, Tk;
  const S *q, *k, *v, *dout;                            // q, dout [B, Tq, H, D]; k, v [B, Tk, G, D]
  const A *lse, *delta;                                 // [B, H, Tq]
  const std::int32_t *query_documents, *key_documents;  // [B, Tq], [B, Tk]; null: one document
  TileList queries, keys;
  A *dq, *dk, *dv;  // with the shapes of q, k, v
};

/// The scratch of one worker, with consecutive parts. Constructed with null, it only counts bytes.
class ScratchParts {
 public:
  explicit ScratchParts(std::byte* memory) : memory_(memory) {}
  /// Returns the bytes of all parts, in whole cache lines.
  std::size_t bytes() const { return (taken_ + 63) / 64 * 64; }

 protected:
  template <class T>
  void take(T*& part, std::int64_t elements) {
    part = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + taken_);
    taken_ += static_cast<std::size_t>(elements) * sizeof(T);
  }

 private:
  std::byte* memory_;
  std::size_t taken_ = 0;
};

/// Sets scores to -inf on the lanes `run` (whole vectors), except where the position (relative to the tile's first,
/// `origin`) is visible and, if a document is given, the document is the same (null: there are none).
template <class A>
void hide_scores(A* scores, LocalRange run, const Integer<A>* positions, const Integer<A>* documents,
                 const PositionRange& seen, std::int64_t origin, const std::int32_t* document) {
  constexpr std::int64_t bound = std::int64_t{1} << 30;  // outside every tile, and within any lane type
  const auto from = static_cast<Integer<A>>(std::clamp(seen.first - origin, -bound, bound));
  const auto to = static_cast<Integer<A>>(std::clamp(seen.last - origin, -bound, bound));
  for (std::int64_t lane = run.begin; lane < run.end; lane += lanes<A>) {
    const Integers<A> position = load_integers<A>(positions + lane);
    Integers<A> visible_lanes = (position >= from) & (position <= to);
    if (document) visible_lanes &= load_integers<A>(documents + lane) == static_cast<Integer<A>>(*document);
    store(scores + lane, visible_lanes ? load(scores + lane) : broadcast<A>(-std::numeric_limits<A>::infinity()));
  }
}

/// Bytes of scratch of one worker, and the number of counters of the whole backward call.
template <class S, class A>
std::size_t forward_scratch_bytes(std::int64_t D);
template <class S, class A>
std::size_t backward_scratch_bytes(std::int64_t D);
std::size_t backward_counter_bytes(const AttentionShape& shape, std::int64_t Tk);

/// workspace: 64-byte aligned; [workers * forward_scratch_bytes] or [counters, workers * backward_scratch_bytes].
template <class S, class A>
void attention_forward(ThreadPool& pool, const ForwardCall<S, A>& call, std::byte* workspace);
template <class S, class A>
void attention_backward(ThreadPool& pool, const BackwardCall<S, A>& call, std::byte* workspace);

void attention_reset(ThreadPool& pool, const AttentionState& state);
void attention_finalize(ThreadPool& pool, const AttentionState& state, const TensorView& out, const TensorView& lse,
                        const ConstTensorView& sinks);
void attention_delta(ThreadPool& pool, const TensorView& delta, const ConstTensorView& dout,
                     const ConstTensorView& out);

}  // namespace ringtrain::cpu
