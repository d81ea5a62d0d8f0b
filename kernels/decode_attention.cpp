#include "kernels/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/check.h"
#include "kernels/cpu/attention_cpu.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain {

namespace {

std::int64_t pieces_of(std::int64_t T) {
  return (T + decode_piece_keys - 1) / decode_piece_keys;
}

/// The state of one head and one query.
template <class T>
struct HeadState {
  T* o;  // [D], unnormalized
  T *m, *l;
};

template <class A, class S>
A dot(const S* a, const S* b, std::int64_t D) {
  cpu::Vector<A> sum{};
  cpu::for_vectors<A>(0, D, [&](auto at) { sum = cpu::fma(at(a), at(b), sum); });
  return cpu::horizontal_sum<A>(sum);
}

/// o[D] = the sum of weights[i] * values[i * row], i < count. Vectors of o stay in registers over all values.
template <class A, class S>
void weighted_values(A* o, const A* weights, const S* values, std::int64_t count, std::int64_t row, std::int64_t D) {
  constexpr std::int64_t W = cpu::lanes<A>, block = 4 * W;
  std::int64_t d = 0;
  for (; d + block <= D; d += block) {
    cpu::Vector<A> sum[4] = {};
    for (std::int64_t i = 0; i < count; ++i) {
      const cpu::Vector<A> weight = cpu::broadcast<A>(weights[i]);
      const S* const from = values + i * row + d;
      cpu::unroll<4>([&](auto j) { sum[j] = cpu::fma(weight, cpu::load(from + j * W), sum[j]); });
    }
    cpu::unroll<4>([&](auto j) { cpu::store(o + d + j * W, sum[j]); });
  }
  cpu::for_vectors<A>(d, D, [&](auto at) {
    cpu::Vector<A> sum{};
    for (std::int64_t i = 0; i < count; ++i) {
      sum = cpu::fma(cpu::broadcast<A>(weights[i]), at(values + i * row), sum);
    }
    at.put(o, sum);
  });
}

/// Sets a head's state to that of its query q[D] for `count` keys and values, `row` elements apart.
template <class A, class S>
void attend_piece(const HeadState<A>& state, const S* q, const S* k, const S* v, std::int64_t count, std::int64_t row,
                  std::int64_t D, A scale, A softcap) {
  alignas(64) A scores[decode_piece_keys];
  for (std::int64_t i = 0; i < count; ++i) scores[i] = dot<A>(q, k + i * row, D) * scale;
  if (softcap > 0) {
    cpu::for_vectors<A>(0, count, [&](auto at) { at.put(scores, softcap * cpu::tanh<A>(at(scores) / softcap)); });
  }
  A largest = -std::numeric_limits<A>::infinity();
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, scores[i]);
  const cpu::Vector<A> factor = cpu::broadcast<A>(static_cast<A>(cpu::log2_e)), anchor = cpu::broadcast<A>(largest);
  cpu::for_vectors<A>(0, count, [&](auto at) { at.put(scores, cpu::exp2<A>((at(scores) - anchor) * factor)); });
  A sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += scores[i];
  weighted_values(state.o, scores, v, count, row, D);
  *state.m = largest;
  *state.l = sum;
}

template <class T>
void combine(const HeadState<T>& into, const HeadState<T>& other, std::int64_t D) {
  if (*other.l == 0) return;
  if (*into.l == 0) {
    std::copy_n(other.o, D, into.o);
    *into.m = *other.m;
    *into.l = *other.l;
    return;
  }
  const T largest = std::max(*into.m, *other.m);
  const T own_factor = std::exp(*into.m - largest), other_factor = std::exp(*other.m - largest);
  for (std::int64_t d = 0; d < D; ++d) into.o[d] = into.o[d] * own_factor + other.o[d] * other_factor;
  *into.m = largest;
  *into.l = *into.l * own_factor + *other.l * other_factor;
}

/// The partial states of all pieces and heads, in the workspace: o [pieces, H, D], then m and l [pieces, H].
template <class T>
struct Partials {
  T* memory;
  std::int64_t pieces, H, D;
  HeadState<T> at(std::int64_t piece, std::int64_t head) const {
    const std::int64_t index = piece * H + head;
    T* const m = memory + pieces * H * D + index;
    return {memory + index * D, m, m + pieces * H};
  }
};

template <class T>
HeadState<T> head_state(const AttentionState& state, std::int64_t row, std::int64_t D) {
  return {state.o.as<T>() + row * D, state.m.as<T>() + row, state.l.as<T>() + row};
}

/// dtype: that of the sums.
void check_one_query(const AttentionState& state, DType dtype) {
  ensure(state.o.shape.rank() == 4 && state.o.dim(0) == 1 && state.o.dim(1) == 1, "a decode state has one query");
  const Shape rows{1, state.o.dim(2), 1};
  check_tensor(state.o, state.o.shape, dtype, "a decode state has the accumulator of its query's dtype");
  check_tensor(state.m, rows, dtype, "a decode state's m is [1, H, 1]");
  check_tensor(state.l, rows, dtype, "a decode state's l is [1, H, 1]");
}

}  // namespace

std::int64_t decode_attention_workspace(const AttentionShape& shape, std::int64_t T) {
  return pieces_of(T) * shape.H * (shape.D + 2);
}

void decode_attention(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                      const ConstTensorView& v, const AttentionState& state, const TensorView& workspace) {
  const std::int64_t H = shape.H, G = shape.G, D = shape.D, keys = k.dim(0), pieces = pieces_of(keys);
  ensure(shape.B == 1 && G >= 1 && H % G == 0,
         "decode attention has one sequence, and heads divide by key/value heads");
  check_tensor(q, {H, D}, q.dtype, "decode attention's q is [H, D]");
  check_tensor(k, {keys, G, D}, q.dtype, "decode attention's k is [T, G, D]");
  check_tensor(v, {keys, G, D}, q.dtype, "decode attention's v is [T, G, D]");
  check_one_query(state, accumulator(q.dtype));
  ensure(workspace.dtype == accumulator(q.dtype) && workspace.numel() >= decode_attention_workspace(shape, keys),
         "decode attention's workspace is at least decode_attention_workspace, of its state's dtype");
  if (stream.on_cuda()) return cuda::decode_attention(stream, shape, q, k, v, state, workspace);
  if (keys == 0) return cpu::attention_reset(stream.pool(), state);
  dispatch_dtype(q.dtype, [&]<class S, class A>() {
    const Partials<A> partials{workspace.as<A>(), pieces, H, D};
    const std::int64_t row = G * D, heads = H / G;
    const A scale = static_cast<A>(shape.scale), softcap = static_cast<A>(shape.softcap);
    stream.pool().run(pieces * G, [&](std::int64_t task, int) {
      const std::int64_t piece = task / G, g = task % G, first = piece * decode_piece_keys;
      const std::int64_t offset = first * row + g * D, count = std::min(decode_piece_keys, keys - first);
      for (std::int64_t h = g * heads; h < (g + 1) * heads; ++h) {
        attend_piece<A>(partials.at(piece, h), q.as<S>() + h * D, k.as<S>() + offset, v.as<S>() + offset, count, row, D,
                        scale, softcap);
      }
    });
    stream.pool().run(H, [&](std::int64_t h, int) {
      for (std::int64_t width = 1; width < pieces; width *= 2) {
        for (std::int64_t i = 0; i + width < pieces; i += 2 * width) {
          combine<A>(partials.at(i, h), partials.at(i + width, h), D);
        }
      }
      const HeadState<A> result = head_state<A>(state, h, D), all = partials.at(0, h);
      std::copy_n(all.o, D, result.o);
      *result.m = *all.m;
      *result.l = *all.l;
    });
  });
}

void combine_attention(Stream& stream, const AttentionState& into, const AttentionState& other) {
  check_one_query(into, into.o.dtype);
  check_one_query(other, into.o.dtype);
  ensure(into.o.shape == other.o.shape, "states of the same query heads are combined");
  if (stream.on_cuda()) return cuda::combine_attention(stream, into, other);
  dispatch_float(into.o.dtype, [&]<class T>() {
    const std::int64_t H = into.o.dim(2), D = into.o.dim(3);
    for (std::int64_t h = 0; h < H; ++h) combine<T>(head_state<T>(into, h, D), head_state<T>(other, h, D), D);
  });
}

}  // namespace ringtrain
