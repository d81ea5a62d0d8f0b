// Checks shapes and dtypes of every attention call, then branches on the device.
#include "kernels/attention.h"

#include <cmath>

#include "framework/error.h"
#include "kernels/check.h"
#include "kernels/cpu/attention_cpu.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/elementwise.h"

namespace ringtrain {

namespace {

void check_state(const AttentionState& state) {
  const Shape rows{state.o.dim(0), state.o.dim(2), state.o.dim(1)};
  ensure(state.o.shape.rank() == 4, "attention state o is [B, T, H, D]");
  ensure(state.m.shape == rows && state.l.shape == rows, "attention state m and l are [B, H, T]");
  ensure(state.m.dtype == state.o.dtype && state.l.dtype == state.o.dtype, "attention state has one dtype");
}

void check_finished(const AttentionState& state, const TensorView& out, const TensorView& lse, DType dtype) {
  check_tensor(out, state.o.shape, dtype, "attention out is shaped as the state's o");
  ensure(state.o.dtype == accumulator(dtype), "attention state has the accumulator of out's dtype");
  check_tensor(lse, state.m.shape, state.m.dtype, "attention lse is shaped as m");
}

/// Checks what forward and backward share and returns [Tq, Tk].
std::array<std::int64_t, 2> check_call(const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                                       const ConstTensorView& v, const AttentionTokens& queries,
                                       const AttentionTokens& keys) {
  const auto& [B, H, G, D, scale, mask, deterministic, softcap] = shape;
  ensure(B >= 0 && H >= 1 && G >= 1 && D >= 1 && H % G == 0, "attention heads divide by key/value heads");
  ensure(scale > 0 && std::isfinite(scale), "attention scale is positive");
  ensure(mask.window >= 0, "attention window is not negative");
  ensure(softcap >= 0 && std::isfinite(softcap), "attention softcap is not negative");
  const std::int64_t Tq = token_count(queries.segments), Tk = token_count(keys.segments);
  check_tensor(q, {B, Tq, H, D}, q.dtype, "attention q is [B, Tq, H, D], Tq the tokens of the query segments");
  check_tensor(k, {B, Tk, G, D}, q.dtype, "attention k is [B, Tk, G, D], Tk the tokens of the key segments");
  check_tensor(v, {B, Tk, G, D}, q.dtype, "attention v is [B, Tk, G, D], Tk the tokens of the key segments");
  if (Tq > 0 && Tk > 0) {
    ensure(queries.documents.empty() == keys.documents.empty(), "documents stand with queries and keys, or neither");
  }
  return {Tq, Tk};
}

/// Returns the document ids [B, T], or null where all tokens are of one document.
const std::int32_t* documents_of(const AttentionTokens& tokens, std::int64_t B, std::int64_t T) {
  if (tokens.documents.empty()) return nullptr;
  check_tensor(tokens.documents, {B, T}, DType::int32, "attention documents are int32 [B, T]");
  return tokens.documents.as<std::int32_t>();
}

std::byte* aligned(const TensorView& workspace, std::size_t needed) {
  ensure(workspace.bytes() >= needed, "attention workspace is at least attention_workspace_bytes");
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.data);
  return static_cast<std::byte*>(workspace.data) + (64 - address % 64) % 64;
}

}  // namespace

std::size_t attention_workspace_bytes(const Stream& stream, const AttentionShape& shape, DType dtype, std::int64_t Tq,
                                      std::int64_t Tk) {
  if (stream.on_cuda()) {
    if (built_with_cuda) return cuda::attention_workspace_bytes(stream, shape, dtype, Tq, Tk);
    // A plan of a GPU's run: the header's bound.
    return static_cast<std::size_t>(1 + shape.B * (Tq / 32 + 16) * (shape.H + 16)) * 4 + 16;
  }
  return dispatch_dtype(dtype, [&]<class S, class A>() {
    const auto workers = static_cast<std::size_t>(stream.pool().workers());
    const std::size_t forward = workers * cpu::forward_scratch_bytes<S, A>(shape.D);
    const std::size_t backward =
        cpu::backward_counter_bytes(shape, Tk) + workers * cpu::backward_scratch_bytes<S, A>(shape.D);
    return std::max(forward, backward) + 64;  // 64: to align it
  });
}

void attention_forward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                       const ConstTensorView& v, const AttentionTokens& queries, const AttentionTokens& keys,
                       const AttentionState& state, const AttentionPhase& phase, const TensorView& workspace) {
  const auto [Tq, Tk] = check_call(shape, q, k, v, queries, keys);
  check_state(state);
  check_tensor(state.o, q.shape, accumulator(q.dtype), "attention state o is shaped as q");
  if (phase.finalize) check_finished(state, phase.out, phase.lse, q.dtype);
  if (stream.on_cuda()) {
    return cuda::attention_forward(stream, shape, q, k, v, queries, keys, state, phase, workspace);
  }
  if (phase.init) cpu::attention_reset(stream.pool(), state);
  if (shape.B > 0 && Tq > 0 && Tk > 0) {
    std::byte* memory = aligned(workspace, attention_workspace_bytes(stream, shape, q.dtype, Tq, Tk));
    const std::int64_t query_tile = cpu::queries_a_task(shape.B * shape.H * Tq, stream.pool().workers());
    dispatch_dtype(q.dtype, [&]<class S, class A>() {
      const cpu::ForwardCall<S, A> call{shape,
                                        Tq,
                                        Tk,
                                        q.as<S>(),
                                        k.as<S>(),
                                        v.as<S>(),
                                        documents_of(queries, shape.B, Tq),
                                        documents_of(keys, shape.B, Tk),
                                        cpu::TileList(queries.segments, query_tile),
                                        cpu::TileList(keys.segments, cpu::forward_key_tile),
                                        state.o.as<A>(),
                                        state.m.as<A>(),
                                        state.l.as<A>()};
      cpu::attention_forward(stream.pool(), call, memory);
    });
  }
  if (phase.finalize) cpu::attention_finalize(stream.pool(), state, phase.out, phase.lse);
}

void attention_finalize(Stream& stream, const AttentionState& state, const TensorView& out, const TensorView& lse) {
  check_state(state);
  check_finished(state, out, lse, out.dtype);
  if (stream.on_cuda()) return cuda::attention_finalize(stream, state, out, lse);
  cpu::attention_finalize(stream.pool(), state, out, lse);
}

void attention_delta(Stream& stream, const TensorView& delta, const ConstTensorView& dout, const ConstTensorView& out) {
  ensure(out.shape.rank() == 4, "attention out is [B, T, H, D]");
  check_tensor(dout, out.shape, out.dtype, "attention dout is shaped as out");
  check_tensor(delta, {out.dim(0), out.dim(2), out.dim(1)}, accumulator(out.dtype), "attention delta is [B, H, T]");
  if (stream.on_cuda()) return cuda::attention_delta(stream, delta, dout, out);
  cpu::attention_delta(stream.pool(), delta, dout, out);
}

void attention_backward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v, const ConstTensorView& dout, const ConstTensorView& lse,
                        const ConstTensorView& delta, const AttentionTokens& queries, const AttentionTokens& keys,
                        const TensorView& dq, const TensorView& dk, const TensorView& dv, const TensorView& workspace,
                        bool accumulate) {
  const auto [Tq, Tk] = check_call(shape, q, k, v, queries, keys);
  const Shape rows{shape.B, shape.H, Tq};
  check_tensor(dout, q.shape, q.dtype, "attention dout is shaped as q");
  check_tensor(lse, rows, accumulator(q.dtype), "attention lse is [B, H, Tq]");
  check_tensor(delta, rows, accumulator(q.dtype), "attention delta is [B, H, Tq]");
  check_tensor(dq, q.shape, accumulator(q.dtype), "attention dq is shaped as q");
  check_tensor(dk, k.shape, accumulator(q.dtype), "attention dk is shaped as k");
  check_tensor(dv, v.shape, accumulator(q.dtype), "attention dv is shaped as v");
  const bool nothing = shape.B == 0 || Tq == 0 || Tk == 0;
  if (stream.on_cuda() && !nothing) {
    return cuda::attention_backward(stream, shape, q, k, v, dout, lse, delta, queries, keys, dq, dk, dv, workspace,
                                    accumulate);
  }
  if (!accumulate) {
    fill(stream, dk, 0.0);
    fill(stream, dv, 0.0);
  }
  if (nothing) return;
  std::byte* memory = aligned(workspace, attention_workspace_bytes(stream, shape, q.dtype, Tq, Tk));
  const std::int64_t key_tile = cpu::keys_a_task(shape.B * shape.G * Tk, stream.pool().workers());
  dispatch_dtype(q.dtype, [&]<class S, class A>() {
    const cpu::BackwardCall<S, A> call{shape,
                                       Tq,
                                       Tk,
                                       q.as<S>(),
                                       k.as<S>(),
                                       v.as<S>(),
                                       dout.as<S>(),
                                       lse.as<A>(),
                                       delta.as<A>(),
                                       documents_of(queries, shape.B, Tq),
                                       documents_of(keys, shape.B, Tk),
                                       cpu::TileList(queries.segments, cpu::backward_query_tile),
                                       cpu::TileList(keys.segments, key_tile),
                                       dq.as<A>(),
                                       dk.as<A>(),
                                       dv.as<A>()};
    cpu::attention_backward(stream.pool(), call, memory);
  });
}

}  // namespace ringtrain
