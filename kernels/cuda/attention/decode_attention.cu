// Attention of one query over a cache on the GPU, after "Flash-Decoding" (kernels/decode_attention.h). A block
// processes a piece of the keys and the query heads that share one key/value head, so keys and values are read from
// memory once, which is the main cost of such a step. A second launch combines the pieces, one block per head. Every
// sum has a fixed order.
#include <cmath>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tanh.cuh"

namespace ringtrain::cuda {

namespace {

constexpr int keys_of_piece = static_cast<int>(decode_piece_keys);
constexpr int threads = 128, warps = threads / 32;
constexpr int lanes_of_key = 8, keys_at_once = threads / lanes_of_key;
constexpr int combine_threads = 256, combine_warps = combine_threads / 32;

/// For all pieces and heads: o [pieces, H, D], m and l [pieces, H].
struct PieceStates {
  float *o, *m, *l;
};

/// The inputs of a call, and its sizes. Heads from one multiple of H / G to the next share a key/value head.
template <class T>
struct DecodeCall {
  const T *q, *k, *v;  // [H, D], [keys, G, D] twice
  std::int64_t keys;
  int H, G, D;
  float scale, softcap;
};

/// How the threads of a block share columns and keys of the values: each has packs of W columns, and one of every
/// `groups` keys.
struct ValueShares {
  int packs, columns, groups;
  __host__ __device__ ValueShares(int D, int W)
      : packs(D / W), columns(packs < threads ? packs : threads), groups(threads / columns) {}
};

/// Returns the floats of shared memory: queries, scores, and sums of values by group.
std::size_t shared_floats(int D, int W, int heads) {
  return static_cast<std::size_t>(heads) * static_cast<std::size_t>(D + keys_of_piece + ValueShares(D, W).groups * D);
}

/// Scores of the block's heads, [Heads, keys_of_piece]: -inf beyond the last key.
template <class T, int W, int Heads>
__device__ __forceinline__ void score_piece(float* const scores, const float* const queries, const T* const k,
                                            const int count, const DecodeCall<T>& call) {
  const int lane = static_cast<int>(threadIdx.x) % lanes_of_key, packs = call.D / W;
  const std::int64_t row = std::int64_t{call.G} * call.D;
  for (int key = static_cast<int>(threadIdx.x) / lanes_of_key; key < keys_of_piece; key += keys_at_once) {
    float sums[Heads] = {};
    for (int pack = lane; key < count && pack < packs; pack += lanes_of_key) {
      const auto x = widened(load<W>(k + key * row + pack * W));
#pragma unroll
      for (int h = 0; h < Heads; ++h) {
#pragma unroll
        for (int e = 0; e < W; ++e) sums[h] = fmaf(x.at[e], queries[h * call.D + pack * W + e], sums[h]);
      }
    }
#pragma unroll
    for (int h = 0; h < Heads; ++h) {
#pragma unroll
      for (int apart = 1; apart < lanes_of_key; apart *= 2) sums[h] += __shfl_xor_sync(0xffffffffU, sums[h], apart);
      float score = sums[h] * call.scale;
      if (call.softcap > 0.0F) score = call.softcap * tanh_of(score / call.softcap);
      if (lane == 0) scores[h * keys_of_piece + key] = key < count ? score : -INFINITY;
    }
  }
}

/// Turns scores into weights relative to the largest of their head, which goes to m, and their sum to l. One warp per
/// head.
template <int Heads>
__device__ __forceinline__ void weigh_piece(float* const scores, float* const m, float* const l) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int h = static_cast<int>(threadIdx.x) / 32; h < Heads; h += warps) {
    float* const head_scores = scores + h * keys_of_piece;
    float largest = -INFINITY, sum = 0.0F;
    for (int key = lane; key < keys_of_piece; key += 32) largest = fmaxf(largest, head_scores[key]);
    largest = warp_maximum(largest);
    for (int key = lane; key < keys_of_piece; key += 32) {
      head_scores[key] = expf(head_scores[key] - largest);
      sum += head_scores[key];
    }
    sum = warp_sum(sum);
    if (lane == 0) {
      m[h] = largest;
      l[h] = sum;
    }
  }
}

template <class T, int W, int Heads>
__global__ void __launch_bounds__(threads) decode_piece_kernel(const PieceStates out, const DecodeCall<T> call) {
  const int D = call.D, thread = static_cast<int>(threadIdx.x), head = static_cast<int>(blockIdx.x) * Heads;
  const int key_head = head / (call.H / call.G);
  const std::int64_t piece = blockIdx.y, first = piece * keys_of_piece, row = std::int64_t{call.G} * D;
  const int count = static_cast<int>(min(std::int64_t{keys_of_piece}, call.keys - first));
  const std::int64_t offset = first * row + std::int64_t{key_head} * D;
  const ValueShares shares(D, W);
  float* const queries = dynamic_shared<float>();      // [Heads, D]
  float* const scores = queries + Heads * D;           // [Heads, keys_of_piece]
  float* const sums = scores + Heads * keys_of_piece;  // [groups, Heads, D]
  const std::int64_t state = piece * call.H + head;    // of the block's first head

  for (int i = thread; i < Heads * D; i += threads) queries[i] = widened(call.q[std::int64_t{head} * D + i]);
  __syncthreads();
  score_piece<T, W, Heads>(scores, queries, call.k + offset, count, call);
  __syncthreads();
  weigh_piece<Heads>(scores, out.m + state, out.l + state);
  __syncthreads();

  const int group = thread / shares.columns;
  for (int pack = thread % shares.columns; group < shares.groups && pack < shares.packs; pack += shares.columns) {
    float partial[Heads][W] = {};
    for (int key = group; key < count; key += shares.groups) {
      const auto x = widened(load<W>(call.v + offset + key * row + pack * W));
#pragma unroll
      for (int h = 0; h < Heads; ++h) {
        const float weight = scores[h * keys_of_piece + key];
#pragma unroll
        for (int e = 0; e < W; ++e) partial[h][e] = fmaf(weight, x.at[e], partial[h][e]);
      }
    }
#pragma unroll
    for (int h = 0; h < Heads; ++h) {
#pragma unroll
      for (int e = 0; e < W; ++e) sums[(group * Heads + h) * D + pack * W + e] = partial[h][e];
    }
  }
  __syncthreads();
  for (int i = thread; i < Heads * D; i += threads) {
    float sum = 0.0F;
    for (int of_group = 0; of_group < shares.groups; ++of_group) sum += sums[of_group * Heads * D + i];
    out.o[state * D + i] = sum;
  }
}

/// Combines the states of all pieces of a head: none if there are no keys. One block per head.
__global__ void __launch_bounds__(combine_threads)
    combine_pieces_kernel(const PieceStates into, const PieceStates from, const std::int64_t pieces, const int H,
                          const int D) {
  __shared__ float maxima[combine_warps];
  __shared__ float sums[combine_threads];
  const int thread = static_cast<int>(threadIdx.x), head = static_cast<int>(blockIdx.x);
  float largest = -INFINITY;
  for (std::int64_t i = thread; i < pieces; i += combine_threads) largest = fmaxf(largest, from.m[i * H + head]);
  largest = warp_maximum(largest);
  if (thread % 32 == 0) maxima[thread / 32] = largest;
  __syncthreads();
  largest = warp_maximum(maxima[thread % combine_warps]);
  float sum = 0.0F;
  for (std::int64_t i = thread; i < pieces; i += combine_threads) {
    sum = fmaf(from.l[i * H + head], expf(from.m[i * H + head] - largest), sum);
  }
  sum = block_sum(sum);
  if (thread == 0) {
    into.m[head] = largest;
    into.l[head] = sum;
  }
  // Processes columns in rounds of at most a block; if there are fewer, groups of threads share the pieces.
  const int columns = min(D, combine_threads), groups = combine_threads / columns;
  const int group = thread / columns;
  for (int begin = 0; begin < D; begin += columns) {
    const int column = begin + thread % columns;
    const bool has_work = group < groups && column < D;
    float partial = 0.0F;
    for (std::int64_t i = group; has_work && i < pieces; i += groups) {
      const std::int64_t at = i * H + head;
      partial = fmaf(from.o[at * D + column], expf(from.m[at] - largest), partial);
    }
    sums[thread] = partial;
    __syncthreads();
    if (group == 0 && has_work) {
      float total = 0.0F;
      for (int of_group = 0; of_group < groups; ++of_group) total += sums[of_group * columns + thread];
      into.o[std::int64_t{head} * D + column] = total;
    }
    __syncthreads();
  }
}

/// Sets `into` to the state of both. A state without keys has l = 0.
__global__ void __launch_bounds__(combine_threads)
    combine_states_kernel(const PieceStates into, const PieceStates other, const int D) {
  const int head = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const float own_m = into.m[head], own_l = into.l[head], other_m = other.m[head], other_l = other.l[head];
  __syncthreads();  // all threads have read what thread 0 overwrites
  if (other_l == 0.0F) return;
  const float largest = own_l == 0.0F ? other_m : fmaxf(own_m, other_m);
  const float own_factor = own_l == 0.0F ? 0.0F : expf(own_m - largest), other_factor = expf(other_m - largest);
  for (std::int64_t i = std::int64_t{head} * D + thread; i < std::int64_t{head + 1} * D; i += combine_threads) {
    into.o[i] = (own_l == 0.0F ? 0.0F : into.o[i] * own_factor) + other.o[i] * other_factor;
  }
  if (thread == 0) {
    into.m[head] = largest;
    into.l[head] = own_l * own_factor + other_l * other_factor;
  }
}

PieceStates pointers_of(const AttentionState& state) {
  return {state.o.as<float>(), state.m.as<float>(), state.l.as<float>()};
}

/// Calls body.template operator()<W, Heads>(): packs of 16 bytes if rows and pointers allow them, and as many heads per
/// block as divide those that share a key/value head.
template <class T, class Body>
void with_sizes(bool whole, std::int64_t heads, Body&& body) {
  with_packs<pack_width<T>>(whole, [&]<int W>() {
    if (heads % 8 == 0) return body.template operator()<W, 8>();
    if (heads % 4 == 0) return body.template operator()<W, 4>();
    if (heads % 3 == 0) return body.template operator()<W, 3>();
    if (heads % 2 == 0) return body.template operator()<W, 2>();
    body.template operator()<W, 1>();
  });
}

}  // namespace

void decode_attention(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                      const ConstTensorView& v, const AttentionState& state, const TensorView& workspace) {
  const std::int64_t keys = k.dim(0), H = shape.H, G = shape.G, D = shape.D;
  const std::int64_t pieces = (keys + keys_of_piece - 1) / keys_of_piece;
  ensure(pieces <= 65535, "a GPU's decode attention meets at most 8,388,480 keys a rank");
  auto* const memory = workspace.as<float>();
  const PieceStates partials{memory, memory + pieces * H * D, memory + pieces * H * (D + 1)};
  dispatch_storage(q.dtype, [&]<class T>() {
    const DecodeCall<T> call{.q = q.as<T>(),
                             .k = k.as<T>(),
                             .v = v.as<T>(),
                             .keys = keys,
                             .H = static_cast<int>(H),
                             .G = static_cast<int>(G),
                             .D = static_cast<int>(D),
                             .scale = static_cast<float>(shape.scale),
                             .softcap = static_cast<float>(shape.softcap)};
    const bool whole = D % pack_width<T> == 0 && aligned_to(16, {k.data, v.data});
    with_sizes<T>(whole, H / G, [&]<int W, int Heads>() {
      launch<decode_piece_kernel<T, W, Heads>>(
          stream.cuda(), dim3(static_cast<unsigned>(H / Heads), static_cast<unsigned>(pieces)), dim3(threads),
          shared_floats(static_cast<int>(D), W, Heads) * sizeof(float), partials, call);
    });
  });
  launch<combine_pieces_kernel>(stream.cuda(), dim3(static_cast<unsigned>(H)), dim3(combine_threads), 0,
                                pointers_of(state), partials, pieces, static_cast<int>(H), static_cast<int>(D));
}

void combine_attention(Stream& stream, const AttentionState& into, const AttentionState& other) {
  launch<combine_states_kernel>(stream.cuda(), dim3(static_cast<unsigned>(into.o.dim(2))), dim3(combine_threads), 0,
                                pointers_of(into), pointers_of(other), static_cast<int>(into.o.dim(3)));
}

}  // namespace ringtrain::cuda
