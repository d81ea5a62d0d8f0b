// Checks shapes and dtypes of every attention call, then branches on the device.
#include "kernels/attention.h"

#include <fmt/core.h>

#include <cmath>

#include "framework/error.h"
#include "kernels/check.h"
#include "kernels/cpu/attention_cpu.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/elementwise.h"

namespace ringtrain {

namespace {

/// The tensors of a call, by their names in the header.
struct Call {
  const Stream& stream;
  const CallerLine& line;

  /// x: [B, T, H, D], like another tensor.
  void check_heads(const ConstTensorView& x, const char* name, std::int64_t B, const char* tokens, std::int64_t T,
                   const char* heads, std::int64_t H, std::int64_t D, DType dtype) const {
    check_argument(stream, x, name, {{"B", B}, {tokens, T}, {heads, H}, {"D", D}}, dtype, line);
  }
  void check_rows(const ConstTensorView& x, const char* name, std::int64_t B, std::int64_t H, std::int64_t Tq,
                  DType dtype) const {
    check_argument(stream, x, name, {{"B", B}, {"H", H}, {"Tq", Tq}}, dtype, line);
  }
  void check_state(const AttentionState& state, DType dtype) const {
    check_heads(state.o, "state.o", any_size, "Tq", any_size, "H", any_size, any_size, dtype);
    check_rows(state.m, "state.m", state.o.dim(0), state.o.dim(2), state.o.dim(1), dtype);
    check_rows(state.l, "state.l", state.o.dim(0), state.o.dim(2), state.o.dim(1), dtype);
  }
  void check_finished(const AttentionState& state, const TensorView& out, const TensorView& lse, DType dtype) const {
    const Shape& o = state.o.shape;
    check_heads(out, "out", o[0], "Tq", o[1], "H", o[2], o[3], dtype);
    check_rows(lse, "lse", o[0], o[2], o[1], accumulator(dtype));
  }
  /// Checks what forward and backward have in common and returns [Tq, Tk].
  std::array<std::int64_t, 2> check_shared(const AttentionShape& shape, const ConstTensorView& q,
                                           const ConstTensorView& k, const ConstTensorView& v,
                                           const AttentionTokens& queries, const AttentionTokens& keys) const {
    const auto& [B, H, G, D, scale, mask, deterministic, softcap] = shape;
    if (B < 0 || H < 1 || G < 1 || D < 1 || H % G != 0) {
      refuse_call(line,
                  fmt::format("an AttentionShape of B = {}, H = {}, G = {}, D = {}: B must be 0 or more, H, G and "
                              "D 1 or more, and H a multiple of G",
                              B, H, G, D));
    }
    if (!(scale > 0 && std::isfinite(scale))) {
      refuse_call(line, fmt::format("AttentionShape::scale is {}, but must be finite and above 0", scale));
    }
    if (mask.window < 0) refuse_call(line, fmt::format("the mask's window is {}, but must be 0 or more", mask.window));
    if (!(softcap >= 0 && std::isfinite(softcap))) {
      refuse_call(line, fmt::format("AttentionShape::softcap is {}, but must be finite and 0 or more", softcap));
    }
    check_segments(queries.segments, "queries.segments");
    check_segments(keys.segments, "keys.segments");
    // T: the number of tokens in the segments.
    const std::int64_t Tq = token_count(queries.segments), Tk = token_count(keys.segments);
    check_number(stream, q, "q", line);
    check_heads(q, "q", B, "Tq", Tq, "H", H, D, q.dtype);
    check_heads(k, "k", B, "Tk", Tk, "G", G, D, q.dtype);
    check_heads(v, "v", B, "Tk", Tk, "G", G, D, q.dtype);
    check_documents(queries, "queries.documents", B, Tq);
    check_documents(keys, "keys.documents", B, Tk);
    if (Tq > 0 && Tk > 0) {
      require_call(queries.documents.empty() == keys.documents.empty(),
                   "give documents for both queries and keys, or for neither", line);
    }
    return {Tq, Tk};
  }
  void check_segments(std::span<const Segment> segments, const char* name) const {
    if (std::ssize(segments) > most_segments) {
      refuse_call(line, fmt::format("{} has {} segments, but may have at most {}: join those that continue each other",
                                    name, segments.size(), most_segments));
    }
    std::int64_t before = -1;
    for (const Segment& segment : segments) {
      if (segment.stride < 1 || segment.stride >= stride_bound) {
        refuse_call(line, fmt::format("{} has the stride {}, but a stride must be from 1 to {}", name, segment.stride,
                                      stride_bound - 1));
      }
      if (segment.count == 0) continue;
      if (segment.start <= before) {
        refuse_call(line, fmt::format("{} has the position {} after {}, but positions must increase from 0", name,
                                      segment.start, before));
      }
      before = segment.last();
    }
  }
  void check_documents(const AttentionTokens& tokens, const char* name, std::int64_t B, std::int64_t T) const {
    if (!tokens.documents.empty()) {
      check_argument(stream, tokens.documents, name, {{"B", B}, {"T", T}}, DType::int32, line);
    }
  }
  /// Returns the workspace from its first 64-byte boundary.
  std::byte* aligned(const TensorView& workspace, std::size_t needed) const {
    if (workspace.bytes() < needed || workspace.empty()) {
      refuse_call(line, fmt::format("workspace has {} bytes, but must have at least attention_workspace_bytes = {}",
                                    workspace.empty() ? 0 : workspace.bytes(), needed));
    }
    const auto address = reinterpret_cast<std::uintptr_t>(workspace.data);
    return static_cast<std::byte*>(workspace.data) + (64 - address % 64) % 64;
  }
};

/// Returns the document ids [B, T], or null if all tokens are in one document.
const std::int32_t* documents_of(const AttentionTokens& tokens) {
  return tokens.documents.empty() ? nullptr : tokens.documents.as<std::int32_t>();
}

}  // namespace

std::size_t attention_workspace_bytes(const Stream& stream, const AttentionShape& shape, DType dtype, std::int64_t Tq,
                                      std::int64_t Tk) {
  if (stream.on_cuda()) {
    if (built_with_cuda) return cuda::attention_workspace_bytes(stream, shape, dtype, Tq, Tk);
    // The plan of a GPU's run uses the bound in the header.
    const std::int64_t counters = 1 + shape.B * (Tq / 32 + most_segments) * (shape.H + most_segments);
    return static_cast<std::size_t>(counters) * 4 + 16;
  }
  return dispatch_dtype(dtype, [&]<class S, class A>() {
    const auto workers = static_cast<std::size_t>(stream.pool().workers());
    const std::size_t forward = workers * cpu::forward_scratch_bytes<S, A>(shape.D);
    const std::size_t backward =
        cpu::backward_counter_bytes(shape, Tk) + workers * cpu::backward_scratch_bytes<S, A>(shape.D);
    return std::max(forward, backward) + 64;  // 64: for alignment
  });
}

void attention_forward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                       const ConstTensorView& v, const AttentionTokens& queries, const AttentionTokens& keys,
                       const AttentionState& state, const AttentionPhase& phase, const TensorView& workspace,
                       const CallerLine& line) {
  const Call checked{stream, line};
  const auto [Tq, Tk] = checked.check_shared(shape, q, k, v, queries, keys);
  const DType sums = accumulator(q.dtype);
  checked.check_heads(state.o, "state.o", shape.B, "Tq", Tq, "H", shape.H, shape.D, sums);
  checked.check_state(state, sums);
  if (phase.finalize) checked.check_finished(state, phase.out, phase.lse, q.dtype);
  const bool nothing = shape.B == 0 || Tq == 0 || Tk == 0;
  const std::size_t bytes = attention_workspace_bytes(stream, shape, q.dtype, Tq, Tk);
  std::byte* const memory = nothing ? nullptr : checked.aligned(workspace, bytes);
  if (stream.on_cuda()) {
    return cuda::attention_forward(stream, shape, q, k, v, queries, keys, state, phase, workspace);
  }
  if (phase.init) cpu::attention_reset(stream.pool(), state);
  if (!nothing) {
    const std::int64_t query_tile = cpu::queries_a_task(shape.B * shape.H * Tq, stream.pool().workers());
    dispatch_dtype(q.dtype, [&]<class S, class A>() {
      const cpu::ForwardCall<S, A> call{shape,
                                        Tq,
                                        Tk,
                                        q.as<S>(),
                                        k.as<S>(),
                                        v.as<S>(),
                                        documents_of(queries),
                                        documents_of(keys),
                                        cpu::TileList(queries.segments, query_tile),
                                        cpu::TileList(keys.segments, cpu::forward_key_tile),
                                        state.o.as<A>(),
                                        state.m.as<A>(),
                                        state.l.as<A>()};
      cpu::attention_forward(stream.pool(), call, memory);
    });
  }
  if (phase.finalize) cpu::attention_finalize(stream.pool(), state, phase.out, phase.lse, {});
}

void attention_finalize(Stream& stream, const AttentionState& state, const TensorView& out, const TensorView& lse,
                        const ConstTensorView& sinks, const CallerLine& line) {
  check_number(stream, out, "out", line);
  const Call checked{stream, line};
  checked.check_state(state, accumulator(out.dtype));
  checked.check_finished(state, out, lse, out.dtype);
  if (!sinks.empty()) check_argument(stream, sinks, "sinks", {{"H", out.dim(2)}}, out.dtype, line);
  if (stream.on_cuda()) return cuda::attention_finalize(stream, state, out, lse, sinks);
  cpu::attention_finalize(stream.pool(), state, out, lse, sinks);
}

void attention_delta(Stream& stream, const TensorView& delta, const ConstTensorView& dout, const ConstTensorView& out,
                     const CallerLine& line) {
  check_number(stream, out, "out", line);
  const Call checked{stream, line};
  checked.check_heads(out, "out", any_size, "Tq", any_size, "H", any_size, any_size, out.dtype);
  const Shape& o = out.shape;
  checked.check_heads(dout, "dout", o[0], "Tq", o[1], "H", o[2], o[3], out.dtype);
  checked.check_rows(delta, "delta", o[0], o[2], o[1], accumulator(out.dtype));
  if (stream.on_cuda()) return cuda::attention_delta(stream, delta, dout, out);
  cpu::attention_delta(stream.pool(), delta, dout, out);
}

void attention_backward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v, const ConstTensorView& dout, const ConstTensorView& lse,
                        const ConstTensorView& delta, const AttentionTokens& queries, const AttentionTokens& keys,
                        const TensorView& dq, const TensorView& dk, const TensorView& dv, const TensorView& workspace,
                        bool accumulate, const CallerLine& line) {
  const Call checked{stream, line};
  const auto [Tq, Tk] = checked.check_shared(shape, q, k, v, queries, keys);
  const DType sums = accumulator(q.dtype);
  checked.check_heads(dout, "dout", shape.B, "Tq", Tq, "H", shape.H, shape.D, q.dtype);
  checked.check_rows(lse, "lse", shape.B, shape.H, Tq, sums);
  checked.check_rows(delta, "delta", shape.B, shape.H, Tq, sums);
  checked.check_heads(dq, "dq", shape.B, "Tq", Tq, "H", shape.H, shape.D, sums);
  checked.check_heads(dk, "dk", shape.B, "Tk", Tk, "G", shape.G, shape.D, sums);
  checked.check_heads(dv, "dv", shape.B, "Tk", Tk, "G", shape.G, shape.D, sums);
  const bool nothing = shape.B == 0 || Tq == 0 || Tk == 0;
  const std::size_t bytes = attention_workspace_bytes(stream, shape, q.dtype, Tq, Tk);
  std::byte* const memory = nothing ? nullptr : checked.aligned(workspace, bytes);
  if (stream.on_cuda() && !nothing) {
    return cuda::attention_backward(stream, shape, q, k, v, dout, lse, delta, queries, keys, dq, dk, dv, workspace,
                                    accumulate);
  }
  if (!accumulate) {
    fill(stream, dk, 0.0);
    fill(stream, dv, 0.0);
  }
  if (nothing) return;
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
                                       documents_of(queries),
                                       documents_of(keys),
                                       cpu::TileList(queries.segments, cpu::backward_query_tile),
                                       cpu::TileList(keys.segments, key_tile),
                                       dq.as<A>(),
                                       dk.as<A>(),
                                       dv.as<A>()};
    cpu::attention_backward(stream.pool(), call, memory);
  });
}

}  // namespace ringtrain
