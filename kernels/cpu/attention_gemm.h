// The small matrix products of attention tiles: C[M, N] (+)= A[M, K] B[K, N], where N is one panel of at most
// panel_vectors vectors. A is read one element at a time and broadcast, so its memory order may be either (rows or
// columns contiguous) and it need not be packed; B and C have contiguous rows. A block of MR x NR vectors of C stays in
// registers for all of K. Elements of A and B are numbers, or Pairs of bfloat16 along K (cpu/pairs.h), which K then
// counts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "kernels/cpu/pairs.h"

namespace ringtrain::cpu {

/// Vectors in a full panel: with this number, a register block is 6 x 4 of 32 registers, or 6 x 2 of 16.
inline constexpr int panel_vectors = vector_registers >= 32 ? 4 : 2;
template <class T>
inline constexpr std::int64_t panel_width = panel_vectors* lanes<T>;
/// Rows of a register block that is NR vectors wide: MR * NR accumulators, NR vectors of B, and one of A must fit.
/// Narrow blocks occur only at edges: eight rows keep the multipliers busy there, and more would only add code.
template <int NR>
inline constexpr int block_rows = std::min(8, (vector_registers - NR - 1) / NR);

/// The memory order of A: rows: A[i, p] = a[i * stride + p]; columns: A[i, p] = a[p * stride + i].
enum class Order { rows, columns };
enum class Store { overwrite, add };

template <class T, Order order, Store mode, int NR, int MR>
[[gnu::noinline]] void gemm_block(std::int64_t K, const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride,
                                  SumOf<T>* c, std::int64_t c_stride) {
  constexpr int W = lanes<T>;
  Vector<SumOf<T>> sum[MR][NR];
  unroll<MR * NR>([&](auto ij) {
    constexpr int i = ij / NR, j = ij % NR;
    sum[i][j] = mode == Store::add ? load(c + i * c_stride + j * W) : Vector<SumOf<T>>{};
  });
  for (std::int64_t p = 0; p < K; ++p) {
    Vector<T> row[NR];
    unroll<NR>([&](auto j) { row[j] = load(b + j * W); });
    unroll<MR>([&](auto i) {
      const Vector<T> x = broadcast(order == Order::rows ? a[i * a_stride] : a[i]);
      unroll<NR>([&](auto j) { sum[i][j] = add_product<T>(sum[i][j], x, row[j]); });
    });
    a += order == Order::rows ? 1 : a_stride;
    b += b_stride;
  }
  unroll<MR * NR>([&](auto ij) {
    constexpr int i = ij / NR, j = ij % NR;
    store(c + i * c_stride + j * W, sum[i][j]);
  });
}

/// The product for one width: M is cut into register blocks of almost equal height.
template <class T, Order order, Store mode, int NR>
void gemm_blocks(std::int64_t M, std::int64_t K, const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride,
                 SumOf<T>* c, std::int64_t c_stride) {
  using Block = void (*)(std::int64_t, const T*, std::int64_t, const T*, std::int64_t, SumOf<T>*, std::int64_t);
  static constexpr auto table = []<int... I>(std::integer_sequence<int, I...>) {
    return std::array<Block, sizeof...(I)>{&gemm_block<T, order, mode, NR, I + 1>...};
  }
  (std::make_integer_sequence<int, block_rows<NR>>{});
  const std::int64_t blocks = (M + block_rows<NR> - 1) / block_rows<NR>;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t height = M / blocks + (block < M % blocks ? 1 : 0);
    table[height - 1](K, a, a_stride, b, b_stride, c, c_stride);
    a += height * (order == Order::rows ? a_stride : 1);
    c += height * c_stride;
  }
}

/// C[M, N] (+)= A[M, K] B[K, N], N = columns rounded up to whole vectors, 1 <= columns <= panel_width<T>.
template <class T, Order order, Store mode>
void gemm_panel(std::int64_t M, std::int64_t columns, std::int64_t K, const T* a, std::int64_t a_stride, const T* b,
                std::int64_t b_stride, SumOf<T>* c, std::int64_t c_stride) {
  using Blocks =
      void (*)(std::int64_t, std::int64_t, const T*, std::int64_t, const T*, std::int64_t, SumOf<T>*, std::int64_t);
  static constexpr auto table = []<int... I>(std::integer_sequence<int, I...>) {
    return std::array<Blocks, sizeof...(I)>{&gemm_blocks<T, order, mode, I + 1>...};
  }
  (std::make_integer_sequence<int, panel_vectors>{});
  table[(columns - 1) / lanes<T>](M, K, a, a_stride, b, b_stride, c, c_stride);
}

}  // namespace ringtrain::cpu
