// Attention that can continue (Dao et al., FlashAttention, 2022; Liu et al., Ring Attention, 2023): forward adds one
// block of keys to a running state; backward adds one block's share to dq, dk, and dv, with the global logsumexp and
// delta. Which query sees which key follows only from positions, documents, and the mask
// (framework/sequence/segments.h); whole tiles that no query sees are skipped. Query head h reads key/value head h / (H
// / G); dk and dv are summed over the group. Tensors are dense. q, k, v, dout, and out have one dtype; the state, lse,
// delta, dq, dk, and dv have its accumulator (framework/dtype.h): nothing is rounded between two blocks. No
// communication. On a CPU, bits do not depend on the number of threads, because every sum has a fixed order, however
// tasks are cut: forward and dq visit key tiles from the last position downwards; dk and dv add query tiles from the
// first position upwards. On CUDA, forward does the same; dk and dv add query tiles from the last downwards; dq adds
// key tiles from the first upwards on tensor cores, if deterministic (kernels/cuda/attention/dq_semaphore.cuh says
// why), and from the last downwards in the general path.
//
// A row that has seen no key has m = -inf, l = 0, o = 0; after it is finished, O = 0, LSE = -inf; in backward its P is
// 0. It is never NaN.
#pragma once

#include <cstdint>
#include <span>

#include "framework/const_tensor_view.h"
#include "framework/sequence/segments.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// The most segments of a shard, and more than every stride.
inline constexpr int most_segments = 16, stride_bound = 1 << 20;
/// The largest head on a GPU.
inline constexpr std::int64_t largest_gpu_head = 256;

/// The positions of the T tokens of one shard, as segments (the same for all B sequences), and the document of each
/// token. Positions increase along T, from 0 or more. documents is int32 [B, T], nondecreasing along T, on the stream's
/// device; empty: one document.
struct AttentionTokens {
  std::span<const Segment> segments;
  ConstTensorView documents;
};

struct AttentionShape {
  std::int64_t B, H, G, D;  // sequences, query heads, key/value heads, head size; H % G == 0
  double scale;             // of the scores, usually 1 / sqrt(D)
  AttentionMask mask;
  bool deterministic = true;  // if false, CUDA may sum dq in any order (faster); a CPU always gives the same bits
  double softcap = 0;  // c above 0: c tanh(s / c) replaces a scaled score s ("Gemma 2", 2024, section 2); 0: s itself
};

/// The running state of T queries. o: [B, T, H, D] unnormalized output; m: [B, H, T] running maximum of scaled scores;
/// l: [B, H, T] running sum of exp(score - m). Owned by the caller.
struct AttentionState {
  TensorView o, m, l;
};

/// Returns the bytes of workspace that forward and backward need for at most Tq queries and Tk keys per call: the
/// larger of the two. On a CPU this is mostly backward's: for each worker a slice with the size of a few tiles (256
/// keys by 64 queries): 5 * 256 * D + 4 * 64 * D + 2 * 64 * 256 elements (D rounded up to whole vectors in part), and a
/// little more; plus one 8-byte counter for each tile of 128 keys and each of B * G heads. It does not depend on Tq. On
/// CUDA it does not depend on Tk: bfloat16 with heads of 64 or 128 takes at most 1 + B * (Tq / 32 + 16) * (H + 16)
/// counters of 4 bytes; all cases take 16 bytes for alignment.
std::size_t attention_workspace_bytes(const Stream& stream, const AttentionShape& shape, DType dtype, std::int64_t Tq,
                                      std::int64_t Tk);

/// A block's position among the blocks of a state: if the state begins or ends with the call, a device need not read or
/// write it.
struct AttentionPhase {
  bool init = false;      // the state's content is ignored: it is that of no keys, o = 0, m = -inf, l = 0
  bool finalize = false;  // out and lse are filled as by attention_finalize; the state is undefined afterwards
  TensorView out, lse;
};

/// Adds the block k[B, Tk, G, D], v[B, Tk, G, D] to the state of q[B, Tq, H, D]. FlashAttention-2, Algorithm 1.
/// workspace: uint8, at least attention_workspace_bytes; its content before and after is irrelevant.
void attention_forward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                       const ConstTensorView& v, const AttentionTokens& queries, const AttentionTokens& keys,
                       const AttentionState& state, const AttentionPhase& phase, const TensorView& workspace,
                       const CallerLine& line = CallerLine::current());

/// out[B, Tq, H, D] = o / l; lse[B, H, Tq] = m + log(l). out may be o's memory if it has its dtype; lse may be m's.
/// Rows without a key: 0 and -inf. sinks: empty, or [H] of out's dtype, which join the rows first
/// (kernels/attention_sinks.h).
void attention_finalize(Stream& stream, const AttentionState& state, const TensorView& out, const TensorView& lse,
                        const ConstTensorView& sinks = {}, const CallerLine& line = CallerLine::current());

/// delta[B, H, Tq] = sum over D of dout * out (both [B, Tq, H, D]). FlashAttention-2, Algorithm 2, line 4.
void attention_delta(Stream& stream, const TensorView& delta, const ConstTensorView& dout, const ConstTensorView& out,
                     const CallerLine& line = CallerLine::current());

/// Adds one block's share to dq[B, Tq, H, D], dk[B, Tk, G, D], dv[B, Tk, G, D], from dout[B, Tq, H, D] and the global
/// lse and delta [B, H, Tq]. Without accumulate, dk and dv are set to the share instead, and their content is ignored.
/// FlashAttention-2, Algorithm 2.
void attention_backward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v, const ConstTensorView& dout, const ConstTensorView& lse,
                        const ConstTensorView& delta, const AttentionTokens& queries, const AttentionTokens& keys,
                        const TensorView& dq, const TensorView& dk, const TensorView& dv, const TensorView& workspace,
                        bool accumulate = true, const CallerLine& line = CallerLine::current());

}  // namespace ringtrain
