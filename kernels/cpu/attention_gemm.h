// The small matrix products of attention tiles: C[M, panel] (+)= A[M, K] B[K, panel], where a panel is NR vectors wide.
// A is read one element at a time and broadcast, so it may lie in memory either way (rows or columns contiguous) and
// need not be packed; B and C have contiguous rows. A block of MR x NR vectors of C stays in registers over all of K.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/attention_simd.h"

namespace ringtrain::cpu {

/// Vectors in a panel, and rows of a register block: MR * NR accumulators, NR vectors of B and one of A must fit.
inline constexpr int panel_vectors = 2;
inline constexpr int max_block_rows = (vector_registers - panel_vectors - 1) / panel_vectors;
template <class T>
inline constexpr std::int64_t panel_width = panel_vectors* lanes<T>;

/// How A lies: rows: A[i, p] = a[i * stride + p]; columns: A[i, p] = a[p * stride + i].
enum class Order { rows, columns };
enum class Store { overwrite, add };

template <class T, Order order, Store mode, int MR>
[[gnu::noinline]] void gemm_block(std::int64_t K, const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride,
                                  T* c, std::int64_t c_stride) {
  constexpr int NR = panel_vectors, W = lanes<T>;
  Vector<T> sum[MR][NR];
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NR; ++j) {
      sum[i][j] = mode == Store::add ? load(c + i * c_stride + j * W) : Vector<T>{};
    }
  }
  for (std::int64_t p = 0; p < K; ++p) {
    Vector<T> row[NR];
    for (int j = 0; j < NR; ++j) row[j] = load(b + j * W);
    for (int i = 0; i < MR; ++i) {
      const Vector<T> x = broadcast<T>(order == Order::rows ? a[i * a_stride] : a[i]);
      for (int j = 0; j < NR; ++j) sum[i][j] = fma(x, row[j], sum[i][j]);
    }
    a += order == Order::rows ? 1 : a_stride;
    b += b_stride;
  }
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NR; ++j) store(c + i * c_stride + j * W, sum[i][j]);
  }
}

/// C[M, panel] (+)= A[M, K] B[K, panel], one panel wide. M is cut into register blocks of almost equal height.
template <class T, Order order, Store mode>
void gemm_panel(std::int64_t M, std::int64_t K, const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride,
                T* c, std::int64_t c_stride) {
  using Block = void (*)(std::int64_t, const T*, std::int64_t, const T*, std::int64_t, T*, std::int64_t);
  static constexpr auto table = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<Block, sizeof...(I)>{&gemm_block<T, order, mode, static_cast<int>(I) + 1>...};
  }
  (std::make_index_sequence<max_block_rows>{});
  if (M <= 0) return;
  const std::int64_t blocks = (M + max_block_rows - 1) / max_block_rows;
  const std::int64_t rows = M / blocks, extra = M % blocks;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t height = rows + (block < extra ? 1 : 0);
    table[static_cast<std::size_t>(height - 1)](K, a, a_stride, b, b_stride, c, c_stride);
    a += height * (order == Order::rows ? a_stride : 1);
    c += height * c_stride;
  }
}

}  // namespace ringtrain::cpu
