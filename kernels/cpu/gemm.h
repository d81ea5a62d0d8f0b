// The matrix product behind every linear layer: C[M, N] = start + A[M, K] B[K, N]. K is cut into blocks of depth_block;
// within a block an element of C is one chain of fused multiply-adds in the order of k that starts from 0, and the
// blocks are added to C one after the other. So an element's bits depend on its row of A, its column of B and K alone:
// not on how the product is cut into tiles, on their sizes, or on the number of threads.
//
// Operands are stored in S, packed as P, and summed in A. P is A, to which packing widens S, or a Pair of bfloat16
// (cpu/pairs.h), whose chains have the same bits. A result that is stored in A is summed where it stands. One that is
// stored in less is summed in the scratch and rounded once, when it is complete.
//
// As in Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): a part of B is packed into
// panels that are read straight through and shared by all threads; a tile packs its rows of A. A panel of B stays in
// L1, A in L2; panel_height x 2 vectors of C stay in registers over a whole depth_block.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "framework/stream.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/pairs.h"

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

/// The most rows of a tile: a block of them, packed, stays in L2.
inline constexpr std::int64_t max_rows = 18 * panel_height;
/// Packed elements of a panel over a whole depth_block, which has no odd end.
template <class P>
inline constexpr std::int64_t panel_elements = packed_terms<P>(depth_block) * panel_width<P>;
/// The most rows whose sums lie in the scratch.
inline constexpr std::int64_t max_band = 1024;

/// Returns how many parts of a size cover a whole.
constexpr std::int64_t parts_of(std::int64_t whole, std::int64_t part) {
  return (whole + part - 1) / part;
}

/// An operand in memory: element (i, j) is data[i * stride + j], or data[j * stride + i] if transposed.
template <class S>
struct Operand {
  const S* data;
  std::int64_t stride;
  bool transposed = false;
  const S* at(std::int64_t i, std::int64_t j) const {
    return transposed ? data + j * stride + i : data + i * stride + j;
  }
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
  if constexpr ((lanes<T>) > 2) exchange_squares<T, 2>(row, all);
  if constexpr ((lanes<T>) > 4) exchange_squares<T, 4>(row, all);
  if constexpr ((lanes<T>) > 8) exchange_squares<T, 8>(row, all);
}

/// to[p * slot + i] = from[i * stride + p] for i < count and p < depth; 0 up to the next whole vector.
template <class S, class A>
void pack_transposed(const S* from, std::int64_t stride, std::int64_t count, std::int64_t depth, A* to,
                     std::int64_t slot) {
  constexpr std::int64_t W = lanes<A>;
  for (std::int64_t i0 = 0; i0 < count; i0 += W) {
    for_vectors<A>(0, depth, [&](auto at) {
      Vector<A> row[W];
      for (std::int64_t i = 0; i < W; ++i) row[i] = i0 + i < count ? at(from + (i0 + i) * stride) : Vector<A>{};
      transpose<A>(row);
      for (std::int64_t p = 0; p < std::min(W, depth - at.i); ++p) store(to + (at.i + p) * slot + i0, row[p]);
    });
  }
}

/// to[p * slot + i] = from[p * stride + i] for i < count and p < depth. Up to the next whole vector, slots hold
/// whatever follows in memory, as far as `readable` elements of a row go: no sum that is kept reads them.
template <class S, class A>
void pack_plain(const S* from, std::int64_t stride, std::int64_t count, std::int64_t readable, std::int64_t depth,
                A* to, std::int64_t slot) {
  constexpr std::int64_t W = lanes<A>;
  for (std::int64_t i = 0; i < count; i += W) {
    if (i + W <= readable) {
      for (std::int64_t p = 0; p < depth; ++p) store(to + p * slot + i, load(from + p * stride + i));
    } else {
      const PartVector<A> part{i, readable - i};
      for (std::int64_t p = 0; p < depth; ++p) store(to + p * slot + i, part(from + p * stride));
    }
  }
}

/// The two, of pairs: to[p * slot + i] = terms 2 p and 2 p + 1 of element i.
inline void pack_transposed(const BFloat16* from, std::int64_t stride, std::int64_t count, std::int64_t depth, Pair* to,
                            std::int64_t slot) {
  cpu::pack_transposed(to, slot, from, stride, count, depth);
}
inline void pack_plain(const BFloat16* from, std::int64_t stride, std::int64_t count, std::int64_t readable,
                       std::int64_t depth, Pair* to, std::int64_t slot) {
  constexpr std::int64_t W = lanes<Pair>;
  for (std::int64_t i = 0; i < count; i += W) {
    const auto halves = [whole = i + W <= readable, left = readable - i](const BFloat16* row) {
      return whole ? load_halves(row) : load_halves(row, left);
    };
    for (std::int64_t k = 0; k + 1 < depth; k += 2) {
      const BFloat16* const row = from + k * stride + i;
      store(to + k / 2 * slot + i, pairs_of(halves(row), halves(row + stride)));
    }
    if (depth % 2 != 0) {
      store(to + depth / 2 * slot + i, pairs_of(halves(from + (depth - 1) * stride + i), Halves{}));
    }
  }
}

/// Packs the panel of B [k .. k + depth, column .. column + width].
template <class S, class P>
void pack_panel(const Operand<S>& b, std::int64_t k, std::int64_t depth, std::int64_t column, std::int64_t width,
                P* to) {
  if (b.transposed) {
    pack_transposed(b.at(k, column), b.stride, width, depth, to, panel_width<P>);
  } else {
    pack_plain(b.at(k, column), b.stride, width, b.stride - column, depth, to, panel_width<P>);
  }
}

/// C[MR, panel_width] += A panel [K, panel_slot] x B panel [K, panel_width], K packed elements deep.
template <class T, int MR>
[[gnu::noinline]] void multiply_panels(std::int64_t K, const T* a, const T* b, SumOf<T>* c, std::int64_t c_stride) {
  constexpr int NR = column_vectors, W = lanes<T>;
  for (int i = 0; i < MR; ++i) {  // C is wanted after the loop, and may still be far away
    for (int j = 0; j < NR; ++j) __builtin_prefetch(c + i * c_stride + j * W, 1, 3);
  }
  Vector<SumOf<T>> sum[MR][NR] = {};
  // In k: the panels stream from L2, some 15 cycles away.
  constexpr std::int64_t a_ahead = 16, b_ahead = 12;
  for (std::int64_t p = 0; p < K; ++p) {
    __builtin_prefetch(a + panel_slot<T> * a_ahead, 0, 3);
    for (int j = 0; j < NR; ++j) __builtin_prefetch(b + panel_width<T> * b_ahead + j * W, 0, 3);
    Vector<T> row[NR];
    for (int j = 0; j < NR; ++j) row[j] = load(b + j * W);
    for (int i = 0; i < MR; ++i) {
      const Vector<T> x = broadcast(a[i]);
      for (int j = 0; j < NR; ++j) sum[i][j] = add_product<T>(sum[i][j], x, row[j]);
    }
    a += panel_slot<T>;
    b += panel_width<T>;
  }
  for (int i = 0; i < MR; ++i) {
    for (int j = 0; j < NR; ++j) store(c + i * c_stride + j * W, load(c + i * c_stride + j * W) + sum[i][j]);
  }
}

template <class T>
void multiply_panels(std::int64_t height, std::int64_t K, const T* a, const T* b, SumOf<T>* c, std::int64_t c_stride) {
  using Kernel = void (*)(std::int64_t, const T*, const T*, SumOf<T>*, std::int64_t);
  static constexpr auto table = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<Kernel, sizeof...(I)>{&multiply_panels<T, static_cast<int>(I) + 1>...};
  }
  (std::make_index_sequence<panel_height>{});
  table[height - 1](K, a, b, c, c_stride);
}

/// The part of B that is packed at a time: `blocks` of depth_block times `panels` of panel_width, panel (block, i) at
/// packed + (block * panels + i) * panel_elements.
struct Part {
  std::int64_t k, depth, column, columns;
  std::int64_t blocks() const { return parts_of(depth, depth_block); }
  template <class T>
  std::int64_t panels() const {
    return parts_of(columns, panel_width<T>);
  }
};

struct Tile {
  std::int64_t row, rows;      // of A and C
  std::int64_t panel, panels;  // of the packed part of B
};

/// Adds A's part times the packed part of B to a tile of C, whose sums at the part's first column stand in c;
/// start(to, column, columns) writes the first term of a piece of a row of C, before anything is added to it.
template <class S, class A, class P, class Start>
void multiply_tile(const Operand<S>& a, const Part& part, const P* packed, const Tile& tile, A* c,
                   std::int64_t c_stride, Start&& start) {
  constexpr std::int64_t wide = panel_width<P>, slot = panel_slot<P>, deep = packed_terms<P>(depth_block);
  alignas(64) P rows_of_a[max_rows / panel_height * slot * deep];
  // Panels of almost equal height: a last panel of one row would cost nearly as much as a full one.
  const std::int64_t heights = parts_of(tile.rows, panel_height);
  const auto first_row = [&](std::int64_t panel) { return panel * tile.rows / heights; };
  for (std::int64_t block = 0; block < part.blocks(); ++block) {
    const std::int64_t k = part.k + block * depth_block, depth = std::min(depth_block, part.k + part.depth - k);
    for (std::int64_t panel = 0; panel < heights; ++panel) {
      const std::int64_t row = tile.row + first_row(panel), height = first_row(panel + 1) - first_row(panel);
      P* const to = rows_of_a + panel * slot * deep;
      if (a.transposed) {
        pack_plain(a.at(row, k), a.stride, height, a.stride - row, depth, to, slot);
      } else {
        pack_transposed(a.at(row, k), a.stride, height, depth, to, slot);
      }
    }
    for (std::int64_t i = 0; i < tile.panels; ++i) {
      const P* const b_panel = packed + (block * part.panels<P>() + tile.panel + i) * panel_elements<P>;
      const std::int64_t offset = (tile.panel + i) * wide, column = part.column + offset;
      const std::int64_t width = std::min(wide, part.columns - offset);
      for (std::int64_t panel = 0; panel < heights; ++panel) {
        const std::int64_t row = tile.row + first_row(panel), height = first_row(panel + 1) - first_row(panel);
        A* const to = c + row * c_stride + offset;
        if (k == 0) {
          for (std::int64_t j = 0; j < height; ++j) start(to + j * c_stride, column, width);
        }
        const P* const a_panel = rows_of_a + panel * slot * deep;
        if (width == wide) {
          multiply_panels(height, packed_terms<P>(depth), a_panel, b_panel, to, c_stride);
          continue;
        }
        A edge[panel_height * wide] = {};  // the same sums, of which only the columns that exist are added
        multiply_panels(height, packed_terms<P>(depth), a_panel, b_panel, edge, wide);
        for (std::int64_t r = 0; r < height; ++r) {
          for (std::int64_t j = 0; j < width; ++j) to[r * c_stride + j] += edge[r * wide + j];
        }
      }
    }
  }
}

/// Tiles of this many rows and panels.
struct Grid {
  std::int64_t rows, panels;
};

/// The tiles with which so many workers finish M rows and so many panels soonest. The bits of the result do not hang on
/// it.
inline Grid grid_of(std::int64_t M, std::int64_t panels, std::int64_t width, int workers) {
  constexpr double pack_row = 16;  // packing a row of A costs about as much as multiplying it with so many columns
  const std::int64_t heights = parts_of(M, panel_height), min_down = parts_of(M, max_rows);
  Grid best{};
  double best_cost = 0;
  for (std::int64_t down = min_down; down <= std::min(heights, min_down + 4 * workers); ++down) {
    for (std::int64_t across = 1; across <= std::min<std::int64_t>(panels, 4 * workers); ++across) {
      const Grid grid{parts_of(heights, down) * panel_height, parts_of(panels, across)};
      const std::int64_t tiles = parts_of(M, grid.rows) * parts_of(panels, grid.panels);
      // Rounds of tiles, and half a tile: others may slow a worker, and the rest then waits for its last one.
      const double rounds = static_cast<double>(parts_of(tiles, workers)) + (workers > 1 ? 0.5 : 0);
      const double cost =
          rounds * static_cast<double>(grid.rows) * (static_cast<double>(grid.panels * width) + pack_row);
      if (best.rows == 0 || cost < best_cost) best = grid, best_cost = cost;
    }
  }
  return best;
}

/// C[M, N] = finish(start + A[M, K] B[K, N]). start(to, column, columns) writes the first term of a piece of a row to
/// its sums. finish(to, sums, columns) writes complete sums to a piece of a row of C; if C is of A, its sums stand in
/// it and nothing is left to do.
template <class S, class A, class P, class C, class Start, class Finish>
void multiply(Stream& stream, std::int64_t M, std::int64_t N, std::int64_t K, const Operand<S>& a, const Operand<S>& b,
              C* c, Start&& start, Finish&& finish) {
  constexpr bool in_place = std::is_same_v<C, A>;
  constexpr std::int64_t wide = panel_width<P>, deepest = 4;
  if (M == 0 || N == 0) return;
  if (K == 0) {
    for (std::int64_t row = 0; row < M; ++row) {
      for (std::int64_t column = 0; column < N; column += wide) {
        const std::int64_t columns = std::min(wide, N - column);
        C* const to = c + row * N + column;
        if constexpr (in_place) {
          start(to, column, columns);
        } else {
          A sums[wide];
          start(sums, column, columns);
          finish(to, sums, columns);
        }
      }
    }
    return;
  }
  P* const packed = stream.scratch<P>().data();
  ThreadPool& pool = stream.pool();
  constexpr std::int64_t held = static_cast<std::int64_t>(Stream::scratch_bytes / sizeof(P)) / panel_elements<P>;
  // Depth first, as far as four blocks; then as many columns as fit, in parts of almost equal width. Beside their
  // panels lie the sums of `band` rows: of C in place none, for its rows are one band.
  const std::int64_t band = in_place ? M : std::min(M, max_band),
                     band_blocks = in_place ? 0 : parts_of(band, packed_terms<P>(depth_block));
  const std::int64_t depths = parts_of(K, depth_block), depth_parts = parts_of(depths, std::min(deepest, held));
  const std::int64_t blocks = parts_of(depths, depth_parts), depth = blocks * depth_block;
  const std::int64_t panels = parts_of(N, wide), column_parts = parts_of(panels, held / (blocks + band_blocks));
  const std::int64_t columns = parts_of(panels, column_parts) * wide;
  for (std::int64_t column = 0; column < N; column += columns) {
    const std::int64_t width = std::min(columns, N - column), across = parts_of(width, wide);
    for (std::int64_t first = 0; first < M; first += band) {
      const std::int64_t rows = std::min(band, M - first);
      const Grid grid = grid_of(rows, across, wide, pool.workers());
      const std::int64_t tiles_across = parts_of(across, grid.panels);
      const Operand<S> a_band{a.at(first, 0), a.stride, a.transposed};
      C* const c_band = c + first * N + column;
      A* sums;  // [rows, sum_stride]
      if constexpr (in_place) {
        sums = c_band;
      } else {
        sums = reinterpret_cast<A*>(packed + blocks * parts_of(columns, wide) * panel_elements<P>);
      }
      const std::int64_t sum_stride = in_place ? N : columns;
      for (std::int64_t k = 0; k < K; k += depth) {
        const Part part{k, std::min(depth, K - k), column, width};
        pool.run(part.blocks() * across, [&](std::int64_t task, int) {
          const std::int64_t at = k + task / across * depth_block, offset = task % across * wide;
          pack_panel(b, at, std::min(depth_block, k + part.depth - at), column + offset,
                     std::min(wide, part.columns - offset), packed + task * panel_elements<P>);
        });
        pool.run(parts_of(rows, grid.rows) * tiles_across, [&](std::int64_t task, int) {
          const std::int64_t row = task / tiles_across * grid.rows, panel = task % tiles_across * grid.panels;
          const Tile tile{row, std::min(grid.rows, rows - row), panel, std::min(grid.panels, across - panel)};
          multiply_tile(a_band, part, packed, tile, sums, sum_stride, start);
          if constexpr (!in_place) {
            if (k + depth < K) return;
            const std::int64_t offset = tile.panel * wide, count = std::min(tile.panels * wide, width - offset);
            for (std::int64_t i = tile.row; i < tile.row + tile.rows; ++i) {
              finish(c_band + i * N + offset, sums + i * sum_stride + offset, count);
            }
          }
        });
      }
    }
  }
}

}  // namespace ringtrain::cpu::gemm
