// The product of one row: y[N] = start + x[K] w[N, K]^T, which reads w once and is limited by memory. gemm.h would pack
// w first, and so move it three times. An element is the same sum as there, to the bit: chains of fused multiply-adds
// over depth_block terms in the order of k, added block by block. So a lane is an element of y, and squares of w are
// transposed in registers. S, A, and rounding are those of gemm.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/thread_pool.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/loops.h"

namespace ringtrain::cpu::gemm {

/// Adds the products of x[K] with rows of w to y[rows], rows <= lanes, and prefetches the rows after these. whole: rows
/// == lanes.
template <bool whole, class S, class A>
void multiply_lanes(const S* x, const S* w, std::int64_t K, std::int64_t rows, A* y) {
  constexpr std::int64_t W = lanes<A>, line = 64 / static_cast<std::int64_t>(sizeof(S));
  const S* ahead = w + W * K;
  for (std::int64_t k = 0; k < K; k += depth_block) {
    const std::int64_t end = std::min(K, k + depth_block);
    Vector<A> sum{};
    for_vectors<A>(k, end, [&](auto at) {
      Vector<A> square[W];
      for (std::int64_t r = 0; r < W; ++r) square[r] = whole || r < rows ? at(w + r * K) : Vector<A>{};
      if constexpr (whole) {  // the next lanes' rows follow in memory: prefetch as much of them as is read here
        for (std::int64_t i = 0; i < W * W; i += line) __builtin_prefetch(ahead + i, 0, 2);
        ahead += W * W;
      }
      transpose<A>(square);
      A widened_x[W];  // widened once, not at each broadcast of an element
      const A* row = widened_x;
      if constexpr (std::is_same_v<S, A>) {
        row = x + at.i;
      } else {
        cpu::store(widened_x, at(x));
      }
      if (at.i + W <= end) {
        for (std::int64_t p = 0; p < W; ++p) sum = fma(broadcast<A>(row[p]), square[p], sum);
      } else {
        for (std::int64_t p = 0; p < end - at.i; ++p) sum = fma(broadcast<A>(row[p]), square[p], sum);
      }
    });
    for (std::int64_t r = 0; r < rows; ++r) y[r] += sum[r];
  }
}

/// y[N] = finish(start + x[K] w[N, K]^T), with start(to, column, columns) and finish(to, sums, columns) of multiply().
template <class S, class A, class Start, class Finish>
void multiply_row(ThreadPool& pool, std::int64_t N, std::int64_t K, const S* x, const S* w, S* y, Start&& start,
                  Finish&& finish) {
  constexpr std::int64_t W = lanes<A>;
  constexpr std::int64_t task_elements = 65536;  // of w: about twenty microseconds from memory
  const std::int64_t task_rows = parts_of(task_elements, std::max<std::int64_t>(1, K) * W) * W;
  for_chunks(pool, N, task_rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; n += W) {
      const std::int64_t rows = std::min(W, end - n);
      const auto add_products = [&](A* sums) {
        start(sums, n, rows);
        if (rows == W) {
          multiply_lanes<true>(x, w + n * K, K, rows, sums);
        } else {
          multiply_lanes<false>(x, w + n * K, K, rows, sums);
        }
      };
      if constexpr (std::is_same_v<S, A>) {
        add_products(y + n);
      } else {
        A sums[W];
        add_products(sums);
        finish(y + n, sums, rows);
      }
    }
  });
}

}  // namespace ringtrain::cpu::gemm
