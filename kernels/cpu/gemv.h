// The product of one row: y[N] = start + x[K] w[N, K]^T, which reads w once and is bound by memory. gemm.h would pack w
// first, and so move it three times. An element is the same sum as there, to the bit: chains of fused multiply-adds
// over depth_block terms in the order of k, added block after block. So a lane is an element of y, and squares of w are
// transposed in registers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/thread_pool.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/loops.h"

namespace ringtrain::cpu::gemm {

/// Adds to y[rows], rows <= lanes, the products of x[K] with rows of w, and prefetches what lies after these rows.
/// whole: rows == lanes.
template <class T, bool whole>
void multiply_lanes(const T* x, const T* w, std::int64_t K, std::int64_t rows, T* y) {
  constexpr std::int64_t W = lanes<T>, line = 64 / static_cast<std::int64_t>(sizeof(T));
  const T* ahead = w + W * K;
  for (std::int64_t k = 0; k < K; k += depth_block) {
    const std::int64_t end = std::min(K, k + depth_block);
    Vector<T> sum{};
    for_vectors<T>(k, end, [&](auto at) {
      Vector<T> square[W];
      for (std::int64_t r = 0; r < W; ++r) square[r] = whole || r < rows ? at(w + r * K) : Vector<T>{};
      if constexpr (whole) {  // the next lanes' rows follow in memory: as much of them as is read here
        for (std::int64_t i = 0; i < W * W; i += line) __builtin_prefetch(ahead + i, 0, 2);
        ahead += W * W;
      }
      transpose<T>(square);
      if (at.i + W <= end) {
        for (std::int64_t p = 0; p < W; ++p) sum = fma(broadcast<T>(x[at.i + p]), square[p], sum);
      } else {
        for (std::int64_t p = 0; p < end - at.i; ++p) sum = fma(broadcast<T>(x[at.i + p]), square[p], sum);
      }
    });
    for (std::int64_t r = 0; r < rows; ++r) y[r] += sum[r];
  }
}

/// y[N] = start + x[K] w[N, K]^T. start(to, column, columns) writes the first term of a piece of y, as in multiply().
template <class T, class Start>
void multiply_row(ThreadPool& pool, std::int64_t N, std::int64_t K, const T* x, const T* w, T* y, Start&& start) {
  constexpr std::int64_t W = lanes<T>;
  constexpr std::int64_t task_elements = 65536;  // of w: some twenty microseconds from memory
  const std::int64_t task_rows = parts_of(task_elements, std::max<std::int64_t>(1, K) * W) * W;
  for_chunks(pool, N, task_rows, [&](std::int64_t begin, std::int64_t end) {
    start(y + begin, begin, end - begin);
    for (std::int64_t n = begin; n < end; n += W) {
      if (n + W <= end) {
        multiply_lanes<T, true>(x, w + n * K, K, W, y + n);
      } else {
        multiply_lanes<T, false>(x, w + n * K, K, end - n, y + n);
      }
    }
  });
}

}  // namespace ringtrain::cpu::gemm
