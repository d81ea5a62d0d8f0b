// Vectors of float and double for the attention kernels: GCC and Clang vector extensions of the widest register that
// the build may use, an explicit fused multiply-add, and a base-2 exponential. Correct on any target; fast if the
// compiler may use AVX2 or AVX-512. In templates, S is the type in which tensors are stored, and A is the type of the
// arithmetic: loads widen bfloat16, and stores round to nearest.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "framework/dtype.h"

#if defined(__FMA__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ringtrain::cpu {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64, vector_registers = 32;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32, vector_registers = 16;
#elif defined(__aarch64__)
inline constexpr int vector_bytes = 16, vector_registers = 32;
#else
inline constexpr int vector_bytes = 16, vector_registers = 16;
#endif
// Whether bfloat16 instructions are used: clang 16 recurses endlessly on vectors of bfloat16.
#if defined(__AVX512BF16__) && defined(__AVX512DQ__) && (!defined(__clang__) || __clang_major__ >= 17)
#define RINGTRAIN_AVX512_BF16 1
#endif

/// Whether fma() below rounds once.
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__)
inline constexpr bool fused = true;
#else
inline constexpr bool fused = false;
#endif

template <class T>
struct Simd;
template <>
struct Simd<float> {
  using Vector = float __attribute__((vector_size(vector_bytes)));
  using Integer = std::int32_t;
  using Integers = std::int32_t __attribute__((vector_size(vector_bytes)));
};
template <>
struct Simd<double> {
  using Vector = double __attribute__((vector_size(vector_bytes)));
  using Integer = std::int64_t;
  using Integers = std::int64_t __attribute__((vector_size(vector_bytes)));
};

template <class T>
using Vector = typename Simd<T>::Vector;
/// Signed integers of T's width: lanes of positions and documents, and the result of a comparison (0 or -1).
template <class T>
using Integer = typename Simd<T>::Integer;
template <class T>
using Integers = typename Simd<T>::Integers;
template <class T>
inline constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));

/// Unaligned load and store (one instruction each).
template <class T>
inline Vector<T> load(const T* from) {
  Vector<T> x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}
template <class T>
inline void store(T* to, Vector<T> x) {
  std::memcpy(to, &x, sizeof(x));
}

/// bfloat16 in memory, `lanes<float>` at a time. The bits are those of BFloat16::rounded on every processor.
using Halves = std::uint16_t __attribute__((vector_size(vector_bytes / 2)));
using Words = std::uint32_t __attribute__((vector_size(vector_bytes)));
inline Vector<float> widened(Halves x) {
#if defined(__AVX512F__)
  const auto wide = std::bit_cast<Words>(_mm512_maskz_cvtepu16_epi32(0xffff, std::bit_cast<__m256i>(x)));
#elif defined(__AVX2__)
  const auto wide = std::bit_cast<Words>(_mm256_cvtepu16_epi32(std::bit_cast<__m128i>(x)));
#else
  const Words wide = __builtin_convertvector(x, Words);
#endif
  return std::bit_cast<Vector<float>>(wide << 16);
}
/// Returns float32 numbers whose upper halves are rounded to nearest, ties to even; for NaN, any number.
inline Words rounded_words(Words bits) {
  return bits + 0x7fffU + ((bits >> 16) & 1U);
}
inline Halves rounded(Vector<float> x) {
#if defined(RINGTRAIN_AVX512_BF16)
  // The instruction treats numbers below 2^-126 as 0; they are very rare.
  constexpr int denormal = 0x20;
  const auto numbers = std::bit_cast<__m512>(x);
  if (_mm512_fpclass_ps_mask(numbers, denormal) == 0) [[likely]] {
    return std::bit_cast<Halves>(_mm512_cvtneps_pbh(numbers));
  }
#endif
  const auto bits = std::bit_cast<Words>(x);
  const Words nearest = rounded_words(bits) >> 16;
  const Words narrow = x == x ? nearest : (bits >> 16) | 0x40U;  // NOLINT(misc-redundant-expression): for NaN
#if defined(__AVX512F__)
  // For all lanes: GCC 12 warns about the undefined lanes that the unmasked form uses.
  return std::bit_cast<Halves>(_mm512_maskz_cvtepi32_epi16(0xffff, std::bit_cast<__m512i>(narrow)));
#elif defined(__AVX2__)
  const auto all = std::bit_cast<__m256i>(narrow);  // no word is above 0xffff, so nothing saturates
  return std::bit_cast<Halves>(_mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
#else
  return __builtin_convertvector(narrow, Halves);
#endif
}
inline Halves load_halves(const BFloat16* from) {
  Halves x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}
/// Returns the first `count` < lanes<float> numbers of memory, followed by 0.
inline Halves load_halves(const BFloat16* from, std::int64_t count) {
  Halves x{};
  std::memcpy(&x, from, static_cast<std::size_t>(count) * sizeof(BFloat16));
  return x;
}
inline Vector<float> load(const BFloat16* from) {
  return widened(load_halves(from));
}
inline void store(BFloat16* to, Vector<float> x) {
  const Halves narrow = rounded(x);
  std::memcpy(static_cast<void*>(to), &narrow, sizeof(narrow));
}

using ringtrain::widened;
/// Returns the value of x after it is stored as S.
template <class S, class A>
inline S rounded_to(A x) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    return BFloat16::rounded(static_cast<float>(x));
  } else {
    return static_cast<S>(x);
  }
}

template <class T>
inline Integers<T> load_integers(const Integer<T>* from) {
  Integers<T> x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}

template <class T>
requires std::is_floating_point_v<T>
inline Vector<T> broadcast(T x) {
  return x - Vector<T>{};
}

/// Returns a * b + c, rounded once if the target can. Explicit, so that bits do not depend on contraction flags.
inline Vector<float> fma(Vector<float> a, Vector<float> b, Vector<float> c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX__) && defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}
inline Vector<double> fma(Vector<double> a, Vector<double> b, Vector<double> c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX__) && defined(__FMA__)
  return _mm256_fmadd_pd(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f64(c, a, b);
#else
  return a * b + c;
#endif
}

/// Calls body with 0, 1, ... N - 1 as compile-time constants: arrays indexed by them stay in registers.
template <int N, class Body>
[[gnu::always_inline]] inline void unroll(const Body& body) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (body(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

/// Lanewise maximum; b if either is NaN.
template <class V>
inline V maximum(V a, V b) {
  return a > b ? a : b;
}

/// Returns whether a comparison is true in any lane.
template <class I>
inline bool any(I comparison) {
  std::uint64_t words[sizeof(I) / 8], all = 0;
  std::memcpy(words, &comparison, sizeof(I));
  for (std::uint64_t word : words) all |= word;
  return all != 0;
}

template <class T>
inline T horizontal_sum(Vector<T> x) {
  T sum = 0;
  for (int i = 0; i < lanes<T>; ++i) sum += x[i];
  return sum;
}

/// Returns a[first], b[first], a[first + 1], b[first + 1], ...
template <class T, int first>
inline Vector<T> interleave(Vector<T> a, Vector<T> b) {
  return [&]<int... I>(std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, (first + I / 2 + (I % 2) * lanes<T>)...);
  }
  (std::make_integer_sequence<int, lanes<T>>{});
}

/// Transposes lanes<T> vectors as the square matrix of their rows, by log2(lanes) rounds of interleaving row i with row
/// i + lanes / 2.
template <class T>
inline void transpose(Vector<T> (&rows)[lanes<T>]) {
  constexpr int W = lanes<T>;
  for (int round = 1; round < W; round *= 2) {
    Vector<T> next[W];
    unroll<W / 2>([&](auto i) {
      next[2 * i] = interleave<T, 0>(rows[i], rows[i + W / 2]);
      next[2 * i + 1] = interleave<T, W / 2>(rows[i], rows[i + W / 2]);
    });
    unroll<W>([&](auto i) { rows[i] = next[i]; });
  }
}

/// to[j * to_stride + i] = from[i * from_stride + j] for i < rows, j < columns.
template <class A, class S>
void transpose(A* to, std::int64_t to_stride, const S* from, std::int64_t from_stride, std::int64_t rows,
               std::int64_t columns) {
  constexpr int W = lanes<A>;
  const std::int64_t whole_rows = rows / W * W, whole_columns = columns / W * W;
  for (std::int64_t i = 0; i < whole_rows; i += W) {
    for (std::int64_t j = 0; j < whole_columns; j += W) {
      Vector<A> block[W];
      unroll<W>([&](auto r) { block[r] = load(from + (i + r) * from_stride + j); });
      transpose<A>(block);
      unroll<W>([&](auto r) { store(to + (j + r) * to_stride + i, block[r]); });
    }
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      to[j * to_stride + i] = widened(from[i * from_stride + j]);
    }
  }
}

/// Coefficients of f^1, f^2, ... of 2^f on [-1/2, 1/2], minimax in relative error with a constant term of exactly 1, so
/// that exp2(0) is exactly 1. shift: 1.5 * 2^mantissa + exponent bias.
template <class T>
struct Exp2Table;
template <>
struct Exp2Table<float> {
  static constexpr float lowest = -127, shift = 12582912.0F + 127;
  static constexpr int mantissa_bits = 23;
  static constexpr float c[] = {0.6931471856213125F, 0.24022644016125055F,   0.055503710927503225F,
                                0.009619340517898F,  0.0013383479655545744F, 0.00014993492763853026F};
};
template <>
struct Exp2Table<double> {
  static constexpr double lowest = -1023, shift = 6755399441055744.0 + 1023;
  static constexpr int mantissa_bits = 52;
  static constexpr double c[] = {0.6931471805599453,    0.24022650695910108,    0.055504108664820355,
                                 0.00961812910760338,   0.0013333558146789997,  0.00015403530445351555,
                                 1.525273341214393e-05, 1.3215441202265196e-06, 1.0178257950651697e-07,
                                 7.072754902773945e-09, 4.4225709601904496e-10};
};

/// Returns 2^x. Relative error below 1.5e-7 (float), 3e-16 (double); 0 for x <= -126.5 (-1022.5), including -inf; NaN
/// remains NaN; x must be below 127.5 (1023.5).
template <class T>
inline Vector<T> exp2(Vector<T> x) {
  using Table = Exp2Table<T>;
  constexpr int terms = static_cast<int>(sizeof(Table::c) / sizeof(T));
  x = maximum(broadcast<T>(Table::lowest), x);
  // Adding the shift rounds x to an integer. The low bits then contain it, biased like an exponent.
  const Vector<T> shifted = x + Table::shift;
  const Vector<T> fraction = x - (shifted - Table::shift);
  Vector<T> p = broadcast<T>(Table::c[terms - 1]);
  for (int i = terms - 2; i >= 0; --i) p = fma(p, fraction, broadcast<T>(Table::c[i]));
  p = fma(p, fraction, broadcast<T>(T{1}));
  Integers<T> bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits <<= Table::mantissa_bits;
  Vector<T> power;
  std::memcpy(&power, &bits, sizeof(power));
  return p * power;
}

/// Returns tanh(x). Relative error below 4 units of rounding; NaN remains NaN. Near 0 it uses the continued fraction
/// (Lambert, 1761), because the form with exponentials would cancel.
template <class T>
inline Vector<T> tanh(Vector<T> x) {
  constexpr T log2e = static_cast<T>(1.4426950408889634074), near = T{0.5}, far = T{30};  // beyond far: 1
  const Vector<T> size = x < 0 ? -x : x, square = x * x;
  const Vector<T> above = ((square + 378) * square + 17325) * square + 135135;
  const Vector<T> below = ((28 * square + 3150) * square + 62370) * square + 135135;
  const Vector<T> exponential = exp2<T>((size > far ? broadcast<T>(far) : size) * (2 * log2e));
  const Vector<T> large = 1 - 2 / (exponential + 1);
  return size < near ? x * above / below : x < 0 ? -large : large;
}

}  // namespace ringtrain::cpu
