// The loops of CPU kernels: fixed chunks spread over a pool, vectors with an exact tail, and sums in double in a fixed
// order. The way a loop is cut depends only on the problem, never on the number of threads. The elements of a tail go
// through the same vector arithmetic as all others, so their bits do not depend on their position.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "framework/thread_pool.h"
#include "kernels/cpu/attention_simd.h"

namespace ringtrain::cpu {

/// Elements in a chunk of an elementwise loop: about 10 microseconds of work, a multiple of every vector's width.
inline constexpr std::int64_t chunk_elements = 16384;

/// Calls body(begin, end) for chunks of [0, n).
template <class Body>
void for_chunks(ThreadPool& pool, std::int64_t n, std::int64_t chunk, Body&& body) {
  pool.run((n + chunk - 1) / chunk,
           [&](std::int64_t task, int) { body(task * chunk, std::min(n, (task + 1) * chunk)); });
}

/// Calls body(row) for all rows, in chunks of about chunk_elements elements.
template <class Body>
void for_rows(ThreadPool& pool, std::int64_t rows, std::int64_t row_elements, Body&& body) {
  const std::int64_t chunk = std::max<std::int64_t>(1, chunk_elements / std::max<std::int64_t>(1, row_elements));
  for_chunks(pool, rows, chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

/// Loads and stores lanes [i, i + lanes) of arrays, of A or of bfloat16.
template <class A>
struct WholeVector {
  std::int64_t i;
  template <class S>
  Vector<A> operator()(const S* from) const {
    return load(from + i);
  }
  template <class S>
  void put(S* to, Vector<A> x) const {
    store(to + i, x);
  }
};

/// The same for the last `count` elements; lanes beyond them read as 0 and are not written.
template <class A>
struct PartVector {
  std::int64_t i, count;
  Vector<A> operator()(const A* from) const {
    Vector<A> x{};
    std::memcpy(&x, from + i, static_cast<std::size_t>(count) * sizeof(A));
    return x;
  }
  Vector<A> operator()(const BFloat16* from) const { return widened(load_halves(from + i, count)); }
  void put(A* to, Vector<A> x) const { std::memcpy(to + i, &x, static_cast<std::size_t>(count) * sizeof(A)); }
  void put(BFloat16* to, Vector<A> x) const {
    const Halves narrow = rounded(x);
    std::memcpy(static_cast<void*>(to + i), &narrow, static_cast<std::size_t>(count) * sizeof(BFloat16));
  }
};

/// Calls body(at) over [begin, end), where at(pointer) loads a vector and at.put(pointer, x) stores one.
template <class T, class Body>
void for_vectors(std::int64_t begin, std::int64_t end, Body&& body) {
  std::int64_t i = begin;
  for (; i + lanes<T> <= end; i += lanes<T>) body(WholeVector<T>{i});
  if (i < end) body(PartVector<T>{i, end - i});
}

/// Calls for_vectors for the chunks of [0, n).
template <class T, class Body>
void map(ThreadPool& pool, std::int64_t n, Body&& body) {
  for_chunks(pool, n, chunk_elements, [&](std::int64_t begin, std::int64_t end) { for_vectors<T>(begin, end, body); });
}

/// Half a vector of float32 numbers, and its doubles: GCC 12 converts them in pieces unless the instruction is given.
using HalfOfFloats = float __attribute__((vector_size(vector_bytes / 2)));
inline Vector<double> doubles_of(HalfOfFloats x) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtps_pd(0xff, x);
#elif defined(__AVX__)
  return _mm256_cvtps_pd(x);
#else
  return __builtin_convertvector(x, Vector<double>);
#endif
}

/// Reads lanes [i, i + lanes<double>) of an array of any arithmetic type as doubles.
struct DoublesAt {
  std::int64_t i;
  Vector<double> operator()(const float* from) const {
    HalfOfFloats x;
    std::memcpy(&x, from + i, sizeof(x));
    return doubles_of(x);
  }
  template <class T>
  Vector<double> operator()(const T* from) const {
    typedef T Narrow __attribute__((vector_size(lanes<double> * sizeof(T))));
    Narrow x;
    std::memcpy(&x, from + i, sizeof(x));
    return __builtin_convertvector(x, Vector<double>);
  }
  Vector<double> operator()(const BFloat16* from) const {
    typedef std::uint16_t Narrow __attribute__((vector_size(lanes<double> * sizeof(std::uint16_t))));
    typedef std::uint32_t Wide __attribute__((vector_size(lanes<double> * sizeof(std::uint32_t))));
    Narrow x;
    std::memcpy(&x, from + i, sizeof(x));
#if defined(__AVX512F__)
    const auto wide = std::bit_cast<Wide>(_mm256_cvtepu16_epi32(std::bit_cast<__m128i>(x)));
#elif defined(__AVX2__)
    const auto wide = std::bit_cast<Wide>(_mm_cvtepu16_epi32(_mm_cvtsi64_si128(std::bit_cast<long long>(x))));
#else
    const Wide wide = __builtin_convertvector(x, Wide);
#endif
    return doubles_of(std::bit_cast<HalfOfFloats>(wide << 16));
  }
};
/// The same for only element i.
struct DoubleAt {
  std::int64_t i;
  template <class T>
  double operator()(const T* from) const {
    return static_cast<double>(widened(from[i]));
  }
};

/// Returns the sum in double of term(at) over [begin, end), where at(pointer) reads elements as doubles: four vectors
/// of running sums, then the tail element by element.
template <class Term>
double sum_in_double(std::int64_t begin, std::int64_t end, Term&& term) {
  constexpr std::int64_t W = lanes<double>;
  Vector<double> s0{}, s1{}, s2{}, s3{};
  std::int64_t i = begin;
  for (; i + 4 * W <= end; i += 4 * W) {
    s0 += term(DoublesAt{i});
    s1 += term(DoublesAt{i + W});
    s2 += term(DoublesAt{i + 2 * W});
    s3 += term(DoublesAt{i + 3 * W});
  }
  for (; i + W <= end; i += W) s0 += term(DoublesAt{i});
  double sum = horizontal_sum<double>((s0 + s1) + (s2 + s3));
  for (; i < end; ++i) sum += term(DoubleAt{i});
  return sum;
}

/// to[c] += the sum in double over tokens t, in order, of term(t, at) at column c < C. Cut by columns.
template <class T, class Term>
void sum_rows_into(ThreadPool& pool, std::int64_t tokens, std::int64_t C, T* to, Term&& term) {
  constexpr std::int64_t W = lanes<double>, vectors = 8, columns = vectors * W;
  for_chunks(pool, C, columns, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t whole = (end - begin) / W;
    Vector<double> sum[vectors] = {};
    double tail[W] = {};
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (whole == vectors) {
        for (std::int64_t j = 0; j < vectors; ++j) sum[j] += term(t, DoublesAt{begin + j * W});
        continue;
      }
      for (std::int64_t j = 0; j < whole; ++j) sum[j] += term(t, DoublesAt{begin + j * W});
      for (std::int64_t c = begin + whole * W; c < end; ++c) tail[c - begin - whole * W] += term(t, DoubleAt{c});
    }
    for (std::int64_t c = begin; c < end; ++c) {
      const std::int64_t j = (c - begin) / W, lane = (c - begin) % W;
      to[c] += static_cast<T>(j < whole ? sum[j][lane] : tail[lane]);
    }
  });
}

/// Returns the sum of partial(begin, end) over at most 256 equal pieces of [0, n), added pairwise. Pieces are multiples
/// of 4096 elements, so the tree depends only on n.
template <class Partial>
double sum_over_tree(ThreadPool& pool, std::int64_t n, Partial&& partial) {
  constexpr std::int64_t max_pieces = 256, grain = 4096;
  const std::int64_t piece = std::max<std::int64_t>(1, (n + max_pieces * grain - 1) / (max_pieces * grain)) * grain;
  const std::int64_t pieces = (n + piece - 1) / piece;
  std::array<double, max_pieces> sums{};
  pool.run(pieces,
           [&](std::int64_t task, int) { sums[task] = partial(task * piece, std::min(n, (task + 1) * piece)); });
  for (std::size_t width = max_pieces / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

/// log2(e), to compute exp with exp2.
inline constexpr double log2_e = 1.4426950408889634074;

/// sigmoid(x) and sigmoid(-x), both to full relative precision: only the exponential of -|x| is used.
template <class T>
struct Sigmoid {
  Vector<T> of_x, of_minus_x;
};
template <class T>
Sigmoid<T> sigmoid(Vector<T> x) {
  const Vector<T> e = exp2<T>((x < 0 ? x : -x) * static_cast<T>(log2_e));
  const Vector<T> large = 1 / (1 + e), small = e * large;
  return {x < 0 ? small : large, x < 0 ? large : small};
}

}  // namespace ringtrain::cpu
