// The matrix product of every linear layer: C[M, N] = start + A[M, K] B[K, N]. K is cut into blocks of depth_block.
// Within a block, an element of C is one chain of fused multiply-adds in the order of k that starts from 0, and the
// blocks are added to C in order. So an element's bits depend only on its row of A, its column of B, and K: not on the
// tiles of the product, their sizes, or the number of threads.
//
// Operands are stored in S, packed as P, and summed in A. P is A, to which packing widens S, or a Pair of bfloat16
// (cpu/pairs.h), whose chains have the same bits. A result that is stored in A is summed in its own memory. A result
// that is stored in a smaller type is summed in the scratch and rounded once, when it is complete.
//
// As in Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008), a part of B is packed into
// panels that are read sequentially and shared by all threads; a tile packs its rows of A. A panel of B stays in L1,
// and A in L2; panel_height x 2 vectors of C stay in registers for a whole depth_block.
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
/// Rows of C in registers: their accumulators, the vectors of B, and one of A fill the register file.
inline constexpr int panel_height = (vector_registers - column_vectors - 1) / column_vectors;
template <class T>
inline constexpr std::int64_t panel_width = column_vectors* lanes<T>;
/// Elements between two k of a packed panel of A: panel_height, rounded up to whole vectors.
template <class T>
inline constexpr std::int64_t panel_slot = (panel_height + lanes<T> - 1) / lanes<T>* lanes<T>;

/// The most rows of a tile: a packed block of them stays in L2.
inline constexpr std::int64_t max_rows = 18 * panel_height;
/// Packed elements of a panel over a whole depth_block, which has no odd end.
template <class P>
inline constexpr std::int64_t panel_elements = packed_terms<P>(depth_block) * panel_width<P>;
/// The most rows whose sums are in the scratch.
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

/// to[p * slot + i] = from[p * stride + i] for i < count and p < depth. Up to the next whole vector, slots hold the
/// elements that follow in memory, as far as `readable` elements of a row allow: no sum that is kept reads them.
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

/// The same for pairs: to[p * slot + i] = terms 2 p and 2 p + 1 of element i.
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
    pack_transposed(to, panel_width<P>, b.at(k, column), b.stride, width, depth);
  } else {
    pack_plain(b.at(k, column), b.stride, width, b.stride - column, depth, to, panel_width<P>);
  }
}

/// C[MR, panel_width] += A panel [K, panel_slot] x B panel [K, panel_width], where K counts packed elements.
template <class T, int MR>
[[gnu::noinline]] void multiply_panels(std::int64_t K, const T* a, const T* b, SumOf<T>* c, std::int64_t c_stride) {
  constexpr int NR = column_vectors, W = lanes<T>;
  for (int i = 0; i < MR; ++i) {  // C is needed after the loop, and may not be in a near cache yet
    for (int j = 0; j < NR; ++j) __builtin_prefetch(c + i * c_stride + j * W, 1, 3);
  }
  Vector<SumOf<T>> sum[MR][NR] = {};
  // Prefetch distances in k: the panels are read from L2, about 15 cycles away.
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

/// The part of B that is packed at a time: `blocks` of depth_block times `panels` of panel_width, with panel (block, i)
/// at packed + (block * panels + i) * panel_elements.
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

/// Adds A's part times the packed part of B to a tile of C, whose sums at the part's first column are in c; start(to,
/// column, columns) writes the first term of a piece of a row of C, before anything is added to it.
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
        pack_transposed(to, slot, a.at(row, k), a.stride, height, depth);
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
        A edge[panel_height * wide] = {};  // the same sums, of which only the existing columns are added
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

/// Returns the tiles with which this many workers finish M rows and this many panels soonest. The bits of the result do
/// not depend on them.
inline Grid grid_of(std::int64_t M, std::int64_t panels, std::int64_t width, int workers) {
  constexpr double pack_row = 16;  // packing a row of A costs about as much as multiplying it with this many columns
  const std::int64_t heights = parts_of(M, panel_height), min_down = parts_of(M, max_rows);
  Grid best{};
  double best_cost = 0;
  for (std::int64_t down = min_down; down <= std::min(heights, min_down + 4 * workers); ++down) {
    for (std::int64_t across = 1; across <= std::min<std::int64_t>(panels, 4 * workers); ++across) {
      const Grid grid{parts_of(heights, down) * panel_height, parts_of(panels, across)};
      const std::int64_t tiles = parts_of(M, grid.rows) * parts_of(panels, grid.panels);
      // Rounds of tiles, plus half a tile: other processes may slow a worker, and all others then wait for its last
      // tile.
      const double rounds = static_cast<double>(parts_of(tiles, workers)) + (workers > 1 ? 0.5 : 0);
      const double cost =
          rounds * static_cast<double>(grid.rows) * (static_cast<double>(grid.panels * width) + pack_row);
      if (best.rows == 0 || cost < best_cost) {
        best = grid;
        best_cost = cost;
      }
    }
  }
  return best;
}

/// How a product is cut: parts of B of `depth` by `columns`, and bands of rows whose sums are in the scratch at a time.
struct Cut {
  std::int64_t band, depth, columns;
};

/// Chooses the depth first, up to four blocks, and then as many columns as fit, in parts of almost equal width. The
/// scratch also has the sums of a band's rows; none if C is summed in place, when its rows are one band.
template <class P>
Cut cut_of(std::int64_t M, std::int64_t N, std::int64_t K, bool in_place) {
  constexpr std::int64_t wide = panel_width<P>, deepest = 4;
  constexpr std::int64_t held = static_cast<std::int64_t>(Stream::scratch_bytes / sizeof(P)) / panel_elements<P>;
  const std::int64_t band = in_place ? M : std::min(M, max_band);
  const std::int64_t band_blocks = in_place ? 0 : parts_of(band, packed_terms<P>(depth_block));
  const std::int64_t depths = parts_of(K, depth_block), depth_parts = parts_of(depths, std::min(deepest, held));
  const std::int64_t blocks = parts_of(depths, depth_parts);
  const std::int64_t panels = parts_of(N, wide), column_parts = parts_of(panels, held / (blocks + band_blocks));
  return {band, blocks * depth_block, parts_of(panels, column_parts) * wide};
}

/// A band of rows of C, `width` columns from `column`; a: its rows of A; sums: [rows, stride], in C itself or in the
/// scratch.
template <class S, class A, class C>
struct Band {
  Operand<S> a;
  std::int64_t rows, column, width;
  C* c;
  A* sums;
  std::int64_t stride;
};

/// Multiplies a band by all depths of B, packed part by part. N: columns of C.
template <class S, class A, class P, class C, class Start, class Finish>
void multiply_band(ThreadPool& pool, const Band<S, A, C>& band, const Grid& grid, const Operand<S>& b, std::int64_t N,
                   std::int64_t K, std::int64_t depth, P* packed, Start&& start, Finish&& finish) {
  constexpr std::int64_t wide = panel_width<P>;
  const std::int64_t across = parts_of(band.width, wide);
  const std::int64_t tiles_across = parts_of(across, grid.panels);
  for (std::int64_t k = 0; k < K; k += depth) {
    const Part part{k, std::min(depth, K - k), band.column, band.width};
    pool.run(part.blocks() * across, [&](std::int64_t task, int) {
      const std::int64_t at = k + task / across * depth_block, offset = task % across * wide;
      pack_panel(b, at, std::min(depth_block, k + part.depth - at), band.column + offset,
                 std::min(wide, part.columns - offset), packed + task * panel_elements<P>);
    });
    pool.run(parts_of(band.rows, grid.rows) * tiles_across, [&](std::int64_t task, int) {
      const std::int64_t row = task / tiles_across * grid.rows, panel = task % tiles_across * grid.panels;
      const Tile tile{row, std::min(grid.rows, band.rows - row), panel, std::min(grid.panels, across - panel)};
      multiply_tile(band.a, part, packed, tile, band.sums, band.stride, start);
      if constexpr (!std::is_same_v<C, A>) {
        if (k + depth < K) return;
        const std::int64_t offset = tile.panel * wide, count = std::min(tile.panels * wide, band.width - offset);
        for (std::int64_t i = tile.row; i < tile.row + tile.rows; ++i) {
          finish(band.c + i * N + offset, band.sums + i * band.stride + offset, count);
        }
      }
    });
  }
}

/// C[M, N] = finish(start + A[M, K] B[K, N]), K >= 1. start(to, column, columns) writes the first term of a piece of a
/// row to its sums. finish(to, sums, columns) writes complete sums to a piece of a row of C; if C has type A, its sums
/// are already in it and nothing remains to be done.
template <class S, class A, class P, class C, class Start, class Finish>
void multiply(Stream& stream, std::int64_t M, std::int64_t N, std::int64_t K, const Operand<S>& a, const Operand<S>& b,
              C* c, Start&& start, Finish&& finish) {
  constexpr bool in_place = std::is_same_v<C, A>;
  constexpr std::int64_t wide = panel_width<P>;
  ensure(in_place || !a.transposed, "a transposed A is multiplied in one band, because packing reads on in its rows");
  if (M == 0 || N == 0) return;
  P* const packed = stream.scratch<P>().data();
  const Cut cut = cut_of<P>(M, N, K, in_place);
  const std::int64_t panels = cut.depth / depth_block * parts_of(cut.columns, wide);
  Grid grids[2][2] = {};  // only the last band and the last part of the columns may be smaller than the others
  for (std::int64_t column = 0; column < N; column += cut.columns) {
    for (std::int64_t first = 0; first < M; first += cut.band) {
      Band<S, A, C> band{.a = {a.at(first, 0), a.stride, a.transposed},
                         .rows = std::min(cut.band, M - first),
                         .column = column,
                         .width = std::min(cut.columns, N - column),
                         .c = c + first * N + column,
                         .sums = nullptr,
                         .stride = in_place ? N : cut.columns};
      if constexpr (in_place) {
        band.sums = band.c;
      } else {
        band.sums = reinterpret_cast<A*>(packed + panels * panel_elements<P>);
      }
      Grid& grid = grids[band.rows == cut.band][band.width == cut.columns];
      if (grid.rows == 0) grid = grid_of(band.rows, parts_of(band.width, wide), wide, stream.pool().workers());
      multiply_band(stream.pool(), band, grid, b, N, K, cut.depth, packed, start, finish);
    }
  }
}

}  // namespace ringtrain::cpu::gemm
