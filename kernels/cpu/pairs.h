// Sums of bfloat16 products two terms at a time, as AVX512-BF16 multiplies them. A Pair holds two adjacent terms of the
// sum. Its upper half comes first: VDPBF16PS adds the product of the upper halves with a fused multiply-add, rounds to
// float32, and then adds that of the lower halves in the same way. So a chain of pairs has the bits of the chain of
// single terms, except for numbers below 2^-126, which the instruction reads and writes as 0.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/bfloat16_products.h"
#include "kernels/cpu/loops.h"

namespace ringtrain::cpu {

struct Pair {
  std::uint32_t bits;
};
template <>
struct Simd<Pair> {
  using Vector = Words;
};

/// Terms of a sum in one packed element of type P: 2 in a Pair.
template <class P>
inline constexpr std::int64_t terms_of = std::is_same_v<P, Pair> ? 2 : 1;
/// Returns how many packed elements hold this many terms; the last may have only one term, and the other is then 0.
template <class P>
constexpr std::int64_t packed_terms(std::int64_t terms) {
  return (terms + terms_of<P> - 1) / terms_of<P>;
}
/// The type of sums of products of packed elements.
template <class P>
using SumOf = std::conditional_t<std::is_same_v<P, Pair>, float, P>;

/// Whether dot() is an instruction here.
#if defined(RINGTRAIN_AVX512_BF16)
inline constexpr bool dot_is_an_instruction = true;
#else
inline constexpr bool dot_is_an_instruction = false;
#endif

/// Returns x with 0, of x's sign, for lanes below the smallest normal number.
inline Vector<float> flushed(Vector<float> x) {
  const auto bits = std::bit_cast<Words>(x);
  return std::bit_cast<Vector<float>>((bits & 0x7f800000U) == 0 ? bits & 0x80000000U : bits);
}
/// Returns the result of dot() with two fused multiply-adds, on any processor.
inline Vector<float> dot_by_fma(Vector<float> sum, Words a, Words b) {
  const auto upper = [](Words x) { return flushed(std::bit_cast<Vector<float>>(x & 0xffff0000U)); };
  const auto lower = [](Words x) { return flushed(std::bit_cast<Vector<float>>(x << 16)); };
  return flushed(fma(lower(a), lower(b), flushed(fma(upper(a), upper(b), flushed(sum)))));
}
/// Returns sum + a's upper halves times b's, + a's lower halves times b's: two roundings per lane.
inline Vector<float> dot(Vector<float> sum, Words a, Words b) {
#if defined(RINGTRAIN_AVX512_BF16)
  return _mm512_dpbf16_ps(sum, std::bit_cast<__m512bh>(a), std::bit_cast<__m512bh>(b));
#else
  return dot_by_fma(sum, a, b);
#endif
}

/// Returns sum + x * y for packed elements.
template <class P>
[[gnu::always_inline]] inline Vector<SumOf<P>> add_product(Vector<SumOf<P>> sum, Vector<P> x, Vector<P> y) {
  if constexpr (std::is_same_v<P, Pair>) {
    return dot(sum, x, y);
  } else {
    return fma(x, y, sum);
  }
}
inline Words broadcast(Pair x) {
  return Words{} + x.bits;
}

/// Returns the pairs (first[i], second[i]) or, from memory, (from[2 i], from[2 i + 1]).
inline Words pairs_of(Halves first, Halves second) {
  return std::bit_cast<Words>(widened(first)) | std::bit_cast<Words>(widened(second)) >> 16;
}
template <class V>
V swapped_halves(V x) {
  return x << 16 | x >> 16;
}
inline Words load_pairs(const BFloat16* from) {
  Words x;
  std::memcpy(&x, from, sizeof(x));
  return swapped_halves(x);
}
/// Returns the first `count` < 2 lanes<Pair> numbers of memory, followed by 0.
inline Words load_pairs(const BFloat16* from, std::int64_t count) {
  Words x{};
  std::memcpy(&x, from, static_cast<std::size_t>(count) * sizeof(BFloat16));
  return swapped_halves(x);
}

inline void store(Pair* to, Words x) {
  std::memcpy(static_cast<void*>(to), &x, sizeof(x));
}

/// Returns sums rounded to bfloat16 like the processor's own instruction: numbers below 2^-126 become 0. NaN remains
/// NaN.
inline Halves rounded_sums(Vector<float> x) {
#if defined(RINGTRAIN_AVX512_BF16)
  return std::bit_cast<Halves>(_mm512_cvtneps_pbh(std::bit_cast<__m512>(x)));
#else
  return rounded(flushed(x));
#endif
}

/// to[p] = (x[2 p], x[2 p + 1]).
inline void store_pairs(Pair* to, Halves x) {
  using Some = std::uint32_t __attribute__((vector_size(vector_bytes / 2)));
  const Some swapped = swapped_halves(std::bit_cast<Some>(x));
  std::memcpy(static_cast<void*>(to), &swapped, sizeof(swapped));
}

/// Returns sums with the values they have after being stored as S.
template <class S, class V>
[[gnu::always_inline]] inline V as_stored(V x) {
  if constexpr (!std::is_same_v<S, BFloat16>) {
    return x;
  } else {
    const auto bits = std::bit_cast<Words>(x);
    const auto nearest = std::bit_cast<Vector<float>>(rounded_words(bits) & 0xffff0000U);
    return x == x ? nearest : x;  // NOLINT(misc-redundant-expression): for NaN
  }
}

// The three ways to pack an operand. Rows of `to` are to_stride packed elements apart, rows of `from` stride elements.

/// Terms along the columns: to[r, p] holds from[r, p], or the pair (from[r, 2 p], from[r, 2 p + 1]), for r < rows and
/// columns; up to to_stride, 0.
template <class A, class S>
void pack_rows(A* to, std::int64_t to_stride, const S* from, std::int64_t stride, std::int64_t rows,
               std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r, from += stride, to += to_stride) {
    for_vectors<A>(0, columns, [=](auto at) { at.put(to, at(from)); });
    std::fill(to + columns, to + to_stride, A{0});
  }
}
inline void pack_rows(Pair* to, std::int64_t to_stride, const BFloat16* from, std::int64_t stride, std::int64_t rows,
                      std::int64_t columns) {
  constexpr std::int64_t W = lanes<Pair>;
  for (std::int64_t r = 0; r < rows; ++r, from += stride, to += to_stride) {
    std::int64_t d = 0;
    for (; d + 2 * W <= columns; d += 2 * W) store(to + d / 2, load_pairs(from + d));
    if (d < columns) {
      const Words last = load_pairs(from + d, columns - d);
      std::memcpy(static_cast<void*>(to + d / 2), &last,
                  static_cast<std::size_t>(packed_terms<Pair>(columns - d)) * sizeof(Pair));
    }
    std::fill(to + packed_terms<Pair>(columns), to + to_stride, Pair{0});
  }
}

/// The same, transposed: to[p, r], and 0 up to the next whole vector of r.
template <class A, class S>
void pack_transposed(A* to, std::int64_t to_stride, const S* from, std::int64_t stride, std::int64_t rows,
                     std::int64_t columns) {
  constexpr std::int64_t W = lanes<A>;
  for (std::int64_t r = 0; r < rows; r += W) {
    for_vectors<A>(0, columns, [&](auto at) {
      Vector<A> square[W];
      for (std::int64_t i = 0; i < W; ++i) square[i] = r + i < rows ? at(from + (r + i) * stride) : Vector<A>{};
      transpose<A>(square);
      for (std::int64_t p = 0; p < std::min(W, columns - at.i); ++p) store(to + (at.i + p) * to_stride + r, square[p]);
    });
  }
}
inline void pack_transposed(Pair* to, std::int64_t to_stride, const BFloat16* from, std::int64_t stride,
                            std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t W = lanes<Pair>;
  for (std::int64_t r = 0; r < rows; r += W) {
    const std::int64_t height = std::min(W, rows - r);
    for (std::int64_t d = 0; d < columns; d += 2 * W) {
      const std::int64_t count = std::min(2 * W, columns - d);
      Vector<float> square[W];  // words, moved as numbers without arithmetic
      for (std::int64_t i = 0; i < W; ++i) {
        const BFloat16* const at = from + (r + i) * stride + d;
        const Words pairs = i >= height ? Words{} : count == 2 * W ? load_pairs(at) : load_pairs(at, count);
        square[i] = std::bit_cast<Vector<float>>(pairs);
      }
      transpose<float>(square);
      for (std::int64_t p = 0; p < packed_terms<Pair>(count); ++p) {
        store(to + (d / 2 + p) * to_stride + r, std::bit_cast<Words>(square[p]));
      }
    }
  }
}

/// Terms along the rows: to[p, c] holds from[p, c], or the pair (from[2 p, c], from[2 p + 1, c]); 0 up to to_stride,
/// and for the missing row of a last pair.
template <class A, class S>
void pack_along_rows(A* to, std::int64_t to_stride, const S* from, std::int64_t stride, std::int64_t rows,
                     std::int64_t columns) {
  pack_rows(to, to_stride, from, stride, rows, columns);
}
inline void pack_along_rows(Pair* to, std::int64_t to_stride, const BFloat16* from, std::int64_t stride,
                            std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t W = lanes<Pair>;
  for (std::int64_t r = 0; r < rows; r += 2, from += 2 * stride, to += to_stride) {
    const BFloat16* const second = r + 1 < rows ? from + stride : nullptr;
    std::int64_t d = 0;
    for (; d + W <= columns; d += W) {
      store(to + d, pairs_of(load_halves(from + d), second ? load_halves(second + d) : Halves{}));
    }
    if (d < columns) {
      const std::int64_t count = columns - d;
      const Words last = pairs_of(load_halves(from + d, count), second ? load_halves(second + d, count) : Halves{});
      std::memcpy(static_cast<void*>(to + d), &last, static_cast<std::size_t>(count) * sizeof(Pair));
    }
    std::fill(to + columns, to + to_stride, Pair{0});
  }
}

/// Calls body.template operator()<P>() with the operand type of products of S: A, or Pair if this process multiplies
/// bfloat16 two at a time (kernels/bfloat16_products.h).
template <class S, class A, class Body>
decltype(auto) dispatch_packed(Body&& body) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    if (bfloat16_products() == BFloat16Products::pairs) return body.template operator()<Pair>();
  }
  return body.template operator()<A>();
}

}  // namespace ringtrain::cpu
