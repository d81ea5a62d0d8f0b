// The matrix product behind every linear layer: C[M, N] += A[M, K] B[K, N] on one tile of C, by one thread. K is cut
// into blocks of depth_block; within a block an element of C is one chain of fused multiply-adds in the order of k that
// starts from 0, and the blocks are added to C one after the other. So an element's bits depend on its row of A, its
// column of B and K alone: not on where the tile begins, how large it is, or which thread computes it.
//
// As in Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): a block of A and of B is
// packed into panels that are read straight through; a panel of B stays in the first cache, A in the second;
// panel_height x 2 vectors of C stay in registers over a whole depth_block.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "kernels/cpu/loops.h"

namespace ringtrain::cpu::gemm {

inline constexpr std::int64_t depth_block = 256;
inline constexpr int column_vectors = 2;
/// Rows of C held in registers: their accumulators, the vectors of B and one of A fill the register file.
inline constexpr int panel_height = (vector_registers - column_vectors - 1) / column_vectors;
template <class T>
inline constexpr std::int64_t panel_width = column_vectors* lanes<T>;
/// Elements between two k of a packed panel of A: panel_height, rounded up to whole vectors.
template <class T>
inline constexpr std::int64_t panel_slot = (panel_height + lanes<T> - 1) / lanes<T>* lanes<T>;

/// The largest tile of C: its packed block of A stays in the second cache; columns only spread the cost of packing A.
inline constexpr std::int64_t max_rows = 18 * panel_height;
template <class T>
inline constexpr std::int64_t max_columns = 16 * panel_width<T>;

/// An operand in memory: element (i, j) is data[i * stride + j], or data[j * stride + i] if transposed.
template <class T>
struct Operand {
  const T* data;
  std::int64_t stride;
  bool transposed = false;
  const T* at(std::int64_t i, std::int64_t j) const {
    return transposed ? data + j * stride + i : data + i * stride + j;
  }
};

/// What a task packs into; lives on its thread's stack (a third of a megabyte in float, twice that in double).
template <class T>
struct Scratch {
  alignas(64) T a[max_rows / panel_height * panel_slot<T> * depth_block];
  alignas(64) T b[panel_width<T> * depth_block];
};

/// One round of a transpose: rows i and i + side exchange their off-diagonal squares of `side` lanes.
template <class T, int side, std::size_t... lane>
void exchange_squares(Vector<T> (&row)[lanes<T>], std::index_sequence<lane...>) {
  constexpr int W = lanes<T>;
  for (int i = 0; i < W; ++i) {
    if ((i & side) != 0) continue;
    const Vector<T> a = row[i], b = row[i + side];
    row[i] = __builtin_shufflevector(a, b, ((lane & side) != 0 ? W + lane - side : lane)...);
    row[i + side] = __builtin_shufflevector(a, b, ((lane & side) != 0 ? W + lane : lane + side)...);
  }
}

/// Transposes a square of vectors in registers.
template <class T>
void transpose(Vector<T> (&row)[lanes<T>]) {
  constexpr auto all = std::make_index_sequence<lanes<T>>{};
  exchange_squares<T, 1>(row, all);
  if constexpr (lanes < T >> 2) exchange_squares<T, 2>(row, all);
  if constexpr (lanes < T >> 4) exchange_squares<T, 4>(row, all);
  if constexpr (lanes < T >> 8) exchange_squares<T, 8>(row, all);
}

/// to[p * slot + i] = from[i * stride + p] for i < count and p < depth; 0 up to the next whole vector.
template <class T>
void pack_transposed(const T* from, std::int64_t stride, std::int64_t count, std::int64_t depth, T* to,
                     std::int64_t slot) {
  constexpr std::int64_t W = lanes<T>;
  for (std::int64_t i0 = 0; i0 < count; i0 += W) {
    for_vectors<T>(0, depth, [&](auto at) {
      Vector<T> row[W];
      for (std::int64_t i = 0; i < W; ++i) row[i] = i0 + i < count ? at(from + (i0 + i) * stride) : Vector<T>{};
      transpose<T>(row);
      for (std::int64_t p = 0; p < std::min(W, depth - at.i); ++p) store(to + (at.i + p) * slot + i0, row[p]);
    });
  }
}

/// to[p * slot + i] = from[p * stride + i] for i < count and p < depth. Up to the next whole vector, slots hold
/// whatever follows in memory, as far as `readable` elements of a row go: no sum that is kept reads them.
template <class T>
void pack_plain(const T* from, std::int64_t stride, std::int64_t count, std::int64_t readable, std::int64_t depth,
                T* to, std::int64_t slot) {
  constexpr std::int64_t W = lanes<T>;
  for (std::int64_t i = 0; i < count; i += W) {
    if (i + W <= readable) {
      for (std::int64_t p = 0; p < depth; ++p) store(to + p * slot + i, load(from + p * stride + i));
    } else {
      const PartVector<T> part{i, readable - i};
      for (std::int64_t p = 0; p < depth; ++p) store(to + p * slot + i, part(from + p * stride));
    }
  }
}

/// C[MR, panel_width] += A panel [K, panel_slot] x B panel [K, panel_width].
template <class T, int MR>
[[gnu::noinline]] void multiply_panels(std::int64_t K, const T* a, const T* b, T* c, std::int64_t c_stride) {
  constexpr int NR = column_vectors, W = lanes<T>;
  Vector<T> sum[MR][NR] = {};
  for (std::int64_t p = 0; p < K; ++p) {
    Vector<T> row[NR];
    for (int j = 0; j < NR; ++j) row[j] = load(b + j * W);
    for (int i = 0; i < MR; ++i) {
      const Vector<T> x = broadcast<T>(a[i]);
      for (int j = 0; j < NR; ++j) sum[i][j] = fma(x, row[j], sum[i][j]);
    }
    a += panel_slot<T>;
    b += panel_width<T>;
  }
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NR; ++j) store(c + i * c_stride + j * W, load(c + i * c_stride + j * W) + sum[i][j]);
  }
}

template <class T>
void multiply_panels(std::int64_t height, std::int64_t K, const T* a, const T* b, T* c, std::int64_t c_stride) {
  using Kernel = void (*)(std::int64_t, const T*, const T*, T*, std::int64_t);
  static constexpr auto table = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<Kernel, sizeof...(I)>{&multiply_panels<T, static_cast<int>(I) + 1>...};
  }
  (std::make_index_sequence<panel_height>{});
  table[static_cast<std::size_t>(height - 1)](K, a, b, c, c_stride);
}

/// c[rows, columns] += a[row0 .. row0 + rows, K] b[K, column0 .. column0 + columns]; rows <= max_rows.
template <class T>
void add_product(const Operand<T>& a, const Operand<T>& b, std::int64_t row0, std::int64_t column0, std::int64_t rows,
                 std::int64_t columns, std::int64_t K, T* c, std::int64_t c_stride) {
  constexpr std::int64_t wide = panel_width<T>, slot = panel_slot<T>;
  Scratch<T> scratch;
  // Panels of almost equal height: a last panel of one row would cost nearly as much as a full one.
  const std::int64_t panels = (rows + panel_height - 1) / panel_height;
  const auto first_row = [&](std::int64_t panel) { return panel * rows / panels; };
  for (std::int64_t k = 0; k < K; k += depth_block) {
    const std::int64_t depth = std::min(depth_block, K - k);
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::int64_t row = first_row(panel), height = first_row(panel + 1) - row;
      T* const to = scratch.a + panel * slot * depth_block;
      const T* const from = a.at(row0 + row, k);
      if (a.transposed) {
        pack_plain(from, a.stride, height, a.stride - row0 - row, depth, to, slot);
      } else {
        pack_transposed(from, a.stride, height, depth, to, slot);
      }
    }
    for (std::int64_t column = 0; column < columns; column += wide) {
      const std::int64_t width = std::min(wide, columns - column);
      const T* const from = b.at(k, column0 + column);
      if (b.transposed) {
        pack_transposed(from, b.stride, width, depth, scratch.b, wide);
      } else {
        pack_plain(from, b.stride, width, b.stride - column0 - column, depth, scratch.b, wide);
      }
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        const std::int64_t row = first_row(panel), height = first_row(panel + 1) - row;
        const T* const a_panel = scratch.a + panel * slot * depth_block;
        T* const to = c + row * c_stride + column;
        if (width == wide) {
          multiply_panels(height, depth, a_panel, scratch.b, to, c_stride);
          continue;
        }
        T edge[panel_height * wide] = {};  // the same sums, of which only the columns that exist are added
        multiply_panels(height, depth, a_panel, scratch.b, edge, wide);
        for (std::int64_t i = 0; i < height; ++i) {
          for (std::int64_t j = 0; j < width; ++j) to[i * c_stride + j] += edge[i * wide + j];
        }
      }
    }
  }
}

/// A tile's rows and columns for an output [M, N]: the largest ones first; smaller where there would be too few tiles
/// for the workers. The bits of the result do not hang on it.
struct Tile {
  std::int64_t rows, columns;
};
template <class T>
Tile tile_of(std::int64_t M, std::int64_t N) {
  constexpr std::int64_t enough = 8;
  Tile tile{max_rows, max_columns<T>};
  const auto tiles = [&] { return ((M + tile.rows - 1) / tile.rows) * ((N + tile.columns - 1) / tile.columns); };
  while (tiles() < enough && (tile.rows > 5 * panel_height || tile.columns > 4 * panel_width<T>)) {
    if (tile.rows > tile.columns || tile.columns <= 4 * panel_width<T>) {
      tile.rows = std::max<std::int64_t>(5, tile.rows / panel_height / 2) * panel_height;
    } else {
      tile.columns = std::max<std::int64_t>(4, tile.columns / panel_width<T> / 2) * panel_width<T>;
    }
  }
  const auto even = [](std::int64_t size, std::int64_t part, std::int64_t unit) {  // no narrow last tile
    const std::int64_t parts = std::max<std::int64_t>(1, (size + part - 1) / part);
    return std::max(unit, ((size + parts - 1) / parts + unit - 1) / unit * unit);
  };
  return {even(M, tile.rows, panel_height), even(N, tile.columns, panel_width<T>)};
}

}  // namespace ringtrain::cpu::gemm
