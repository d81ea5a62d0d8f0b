// Products of bfloat16 by tiles (kernels/cpu/tiles.h) against plain scalar code: the instruction term by term, then
// whole linear layers, whose every element is said once more in the order that the headers promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

#include "framework/random.h"
#include "kernels/cpu/tiles.h"
#include "kernels/matmul.h"
#include "tests/kernels/halves.h"
#include "tests/support/kernel_harness.h"
#include "tests/support/multiplying.h"

namespace ringtrain {
namespace {

using namespace ringtrain::testing;
using cpu::Tiled;

/// x, or 0 of its sign below the smallest normal number.
float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
}
float number(std::uint32_t half) {
  return flushed(std::bit_cast<float>(half << 16));
}

/// The instruction for one element: sum plus the products of 16 pairs.
template <class Left, class Right>
float added(float sum, Left left, Right right) {
  float uppers = 0, lowers = 0;
  for (std::int64_t p = 0; p < 16; ++p) {
    const std::uint32_t x = left(p), y = right(p);
    uppers = flushed(std::fma(number(x >> 16), number(y >> 16), uppers));
    lowers = flushed(std::fma(number(x & 0xffffU), number(y & 0xffffU), lowers));
  }
  return flushed(flushed(sum) + flushed(uppers + lowers));
}

TEST(Tiles, AreTwoChainsOfFusedMultiplyAdds) {
  constexpr std::int64_t deep = 3, side = cpu::tiles::side, block = cpu::tiles::block;
  alignas(64) static Tiled a[2 * deep * side * side], b[deep * side * block];
  for (std::uint64_t draw = 0; draw < 60; ++draw) {
    std::uint64_t drawn = 0;
    const auto fill = [&](Tiled& x) {
      const auto bits = static_cast<std::uint32_t>(random_bits(6, Purpose::test, draw * 10000 + drawn++));
      // In turn any bits, numbers of like size, which cancel and round, and ones whose products are below 2^-126.
      if (draw % 3 == 0) x.bits = bits;
      if (draw % 3 == 1) x.bits = (bits & 0x81ff81ffU) | 0x3e003e00U;
      if (draw % 3 == 2) x.bits = (bits & 0x81ff81ffU) | 0x1f001f00U;
    };
    std::ranges::for_each(a, fill);
    std::ranges::for_each(b, fill);
    for (const bool second : {false, true}) {
      for (const bool by_instruction : {false, true}) {
        if (by_instruction && !cpu::tiles::available()) continue;
        alignas(64) float sums[block * block];
        std::fill_n(sums, block * block, 7.0F);
        {
          const cpu::tiles::Configured configured(by_instruction);
          (by_instruction ? cpu::tiles::multiply : cpu::tiles::multiply_emulated)(deep, second, a, b, sums);
        }
        for (std::int64_t r = 0; r < block; ++r) {
          for (std::int64_t c = 0; c < block; ++c) {
            float expected = r < side || second ? 0.0F : 7.0F;
            for (std::int64_t k = 0; k < deep && expected != 7.0F; ++k) {
              const std::int64_t tile = (r / side * deep + k) * side * side + r % side * side;
              expected = added(
                  expected, [&](std::int64_t p) { return a[tile + p].bits; },
                  [&](std::int64_t p) { return b[(k * side + p) * block + c].bits; });
            }
            const float actual = sums[r * block + c];
            if (std::isnan(expected)) {
              ASSERT_TRUE(std::isnan(actual));
            } else {
              ASSERT_EQ(std::bit_cast<std::uint32_t>(actual), std::bit_cast<std::uint32_t>(expected))
                  << "draw " << draw << " at " << r << ", " << c;
            }
          }
        }
      }
    }
  }
}

/// start + a row of A times a column of B: blocks of 256 terms, each 32 of them at a time.
template <class Left, class Right>
float product(float start, std::int64_t K, Left left, Right right) {
  float sum = start;
  for (std::int64_t block = 0; block < K; block += 256) {
    float of_block = 0;
    for (std::int64_t k = block; k < std::min(K, block + 256); k += 32) {
      const auto pair_of = [&](const auto& operand) {
        return [&, k](std::int64_t p) {
          const auto half = [&](std::int64_t i) -> std::uint32_t { return i < K ? operand(i).bits : 0; };
          return half(k + 2 * p) << 16 | half(k + 2 * p + 1);
        };
      };
      of_block = added(of_block, pair_of(left), pair_of(right));
    }
    sum += of_block;
  }
  return sum;
}

TEST(Tiles, GiveLinearLayersTheOrderThatIsPromised) {
  const Multiplying products(BFloat16Products::tiles);
  for (const auto& [T, I, O] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{2, 1, 3},
                                {16, 32, 32},
                                {17, 31, 33},
                                {129, 257, 65},
                                {300, 530, 40},
                                {600, 40, 77}}) {
    SCOPED_TRACE("T " + std::to_string(T) + " I " + std::to_string(I) + " O " + std::to_string(O));
    const Halves x = random_halves(T * I, 1), w = random_halves(O * I, 2), dy = random_halves(T * O, 3);
    const Halves bias = random_halves(O, 4);
    for (const int workers : {1, 3}) {
      CpuStream stream(workers);
      Halves y(static_cast<std::size_t>(T * O)), dx(static_cast<std::size_t>(T * I));
      Floats dw(static_cast<std::size_t>(O * I), 0.5F);
      linear_forward(stream, view_of(y, {T, O}), view_of(x, {T, I}), view_of(w, {O, I}), view_of(bias, {O}));
      linear_backward_input(stream, view_of(dx, {T, I}), view_of(dy, {T, O}), view_of(w, {O, I}), false);
      linear_backward_weight(stream, view_of(dw, {O, I}), {}, view_of(dy, {T, O}), view_of(x, {T, I}), true);
      // Of matrices [rows, columns], element (i, j), wherever it lies.
      const auto at = [](const Halves& m, std::int64_t columns) {
        return [&m, columns](std::int64_t i, std::int64_t j) { return m[static_cast<std::size_t>(i * columns + j)]; };
      };
      const auto xs = at(x, I), ws = at(w, I), dys = at(dy, O), ys = at(y, O), dxs = at(dx, I);
      for (std::int64_t i = 0; i < O; ++i) {
        for (std::int64_t t = 0; t < T; ++t) {
          const float sum = product(
              bias[static_cast<std::size_t>(i)].value(), I, [&](std::int64_t k) { return xs(t, k); },
              [&](std::int64_t k) { return ws(i, k); });
          ASSERT_EQ(ys(t, i).bits, nearest(sum).bits) << "y " << t << ", " << i;
        }
        for (std::int64_t j = 0; j < I; ++j) {
          const float sum = product(
              0.5F, T, [&](std::int64_t k) { return dys(k, i); }, [&](std::int64_t k) { return xs(k, j); });
          ASSERT_EQ(dw[static_cast<std::size_t>(i * I + j)], sum) << "dw " << i << ", " << j;
        }
      }
      for (std::int64_t t = 0; t < T; ++t) {
        for (std::int64_t j = 0; j < I; ++j) {
          const float sum = product(
              0, O, [&](std::int64_t k) { return dys(t, k); }, [&](std::int64_t k) { return ws(k, j); });
          ASSERT_EQ(dxs(t, j).bits, nearest(sum).bits) << "dx " << t << ", " << j;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringtrain
