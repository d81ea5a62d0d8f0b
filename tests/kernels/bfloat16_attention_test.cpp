// Compares attention in bfloat16 on a CPU with the same kernels on float32 tensors that have the same numbers: scores,
// statistics, and states are never rounded; P and dS are, for their products. Then compares bfloat16 products two terms
// at a time (kernels/cpu/pairs.h) with one at a time: the same bits, in attention and in linear layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <string>

#include "framework/random.h"
#include "kernels/cpu/pairs.h"
#include "kernels/matmul.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/halves.h"
#include "tests/support/kernel_harness.h"
#include "tests/support/multiplying.h"

namespace ringtrain::testing {
namespace {

/// One run of the attention kernels, forward over all blocks and back, in bfloat16 or in float32; out_of: the outputs
/// for backward, if not its own.
template <class S>
struct AttentionRun : Problem<S, float> {
  Floats out_widened;

  AttentionRun(const AttentionCase& c, const Problem<float>& in, const Floats& out_of, int workers) {
    const auto stored = [](const Floats& x) {
      std::vector<S> y;
      for (const float value : x) y.push_back(cpu::rounded_to<S>(value));
      return y;
    };
    this->q = stored(in.q);
    this->dout = stored(in.dout);
    for (const Floats& block : in.k) this->k.push_back(stored(block));
    for (const Floats& block : in.v) this->v.push_back(stored(block));
    Calls<S, float> calls(*this, c, workers);
    calls.forward();
    for (const S value : this->out) out_widened.push_back(widened(value));
    this->out = stored(out_of.empty() ? out_widened : out_of);
    this->dq.assign(in.q.size(), 0.25F);
    this->dk.resize(in.k.size()), this->dv.resize(in.k.size());
    for (std::size_t i = 0; i < in.k.size(); ++i) this->dk[i] = this->dv[i] = Floats(in.k[i].size(), 0.5F);
    calls.backward();
  }
};

/// Cases whose tiles, pairs, and panels are complete, and cases where none is.
std::vector<AttentionCase> attention_cases() {
  AttentionShape capped = shape_of(1, 2, 1, 24);
  capped.softcap = 3;
  std::vector<AttentionCase> cases{
      whole("small", shape_of(2, 4, 2, 20), 37),
      whole("documents", shape_of(2, 2, 2, 65), 300, 40),
      whole("window", shape_of(1, 2, 1, 128, true, 50), 600),
      whole("odd window", shape_of(1, 1, 1, 32, true, 33), 517),
      whole("capped", capped, 270),
      whole("full", shape_of(1, 1, 1, 8, false), 70),
      whole("one token", shape_of(1, 1, 1, 1), 1),
      {"blocks", shape_of(1, 4, 2, 64), {{0, 1, 100}}, {{{0, 1, 100}}, {{130, 2, 50}}, {{3, 1, 60}}}}};
  // Shards that begin at odd positions.
  for (const std::int64_t start : {1, 7, 127, 129}) {
    const SegmentList shard{{start, 1, 301}};
    cases.push_back({"from " + std::to_string(start), shape_of(1, 2, 1, 31), shard, {shard}, start == 7 ? 60 : 0});
    const SegmentList strided{{start, 3, 150}};
    cases.push_back({"strided from " + std::to_string(start), shape_of(1, 1, 1, 16), strided, {shard, strided}});
    // Many heads: a task takes two tiles of keys, whose shares of dq are split at an odd key.
    cases.push_back({"many heads from " + std::to_string(start), shape_of(2, 16, 16, 8), shard, {shard}});
  }
  return cases;
}

/// The case's inputs, as stored in bfloat16.
Problem<float> stored_inputs(const AttentionCase& c) {
  Problem<float> in = make_inputs<float>(c);
  const auto as_stored = [](Floats& x) { x = wide(rounded(x)); };
  as_stored(in.q), as_stored(in.dout);
  for (Floats& x : in.k) as_stored(x);
  for (Floats& x : in.v) as_stored(x);
  return in;
}

/// Returns |a - b| / |b|, for all elements together.
double relative_error(const Floats& a, const std::vector<double>& b) {
  double square = 0, difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    square += b[i] * b[i];
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  }
  return std::sqrt(difference / square);
}

Floats joined(const std::vector<Floats>& blocks) {
  Floats all;
  for (const Floats& block : blocks) all.insert(all.end(), block.begin(), block.end());
  return all;
}

TEST(BFloat16Kernels, AttentionRoundsOnlyProbabilitiesAndTheirGradient) {
  for (const AttentionCase& c : attention_cases()) {
    for (const bool sinks : {false, true}) {
      SCOPED_TRACE(c.name + (sinks ? " with sinks" : ""));
      AttentionCase of = c;
      for (const float sink : wide(rounded(normals<float>(sinks ? c.shape.H : 0, 77)))) of.sinks.push_back(sink);
      const Problem<float> in = stored_inputs(c);
      const AttentionRun<BFloat16> half(of, in, {}, 2);
      const AttentionRun<float> full(of, in, half.out_widened, 3);
      // Scores were never rounded, and neither was the state between two blocks.
      EXPECT_TRUE(half.m == full.m && half.l == full.l);
      EXPECT_TRUE(half.dsinks == full.dsinks);
      EXPECT_TRUE(half.lse == full.lse && half.delta == full.delta);
      for (std::size_t i = 0; i < half.out_widened.size(); ++i) {
        ASSERT_NEAR(half.out_widened[i], full.out_widened[i], 0x1p-6 * std::abs(full.out_widened[i]) + 0x1p-7) << i;
      }
      const auto near = [](const Floats& a, const Floats& b, float start, const char* what) {
        std::vector<double> expected;
        for (const float value : b) expected.push_back(static_cast<double>(value) - start);
        Floats actual = a;
        for (float& value : actual) value -= start;
        if (std::ranges::all_of(expected, [](double x) { return std::abs(x) < 1e-6; })) return;  // for one key, dS is 0
        EXPECT_LE(relative_error(actual, expected), 0x1p-8) << what;
      };
      // No sum is stored as bfloat16: most of its numbers have lower bits.
      for (const Floats& sums : {half.o, half.dq, joined(half.dk), joined(half.dv)}) {
        const auto changed = [](float x) { return x != 0 && x != 0.25F && x != 0.5F; };
        const auto fine = [](float x) { return (std::bit_cast<std::uint32_t>(x) & 0xffffU) != 0; };
        const auto rows = std::ranges::count_if(sums, changed);
        if (rows < 200) continue;  // for one token
        EXPECT_GE(std::ranges::count_if(sums, [&](float x) { return changed(x) && fine(x); }), 0.9 * rows);
      }
      near(half.o, full.o, 0, "o");
      near(half.dq, full.dq, 0.25F, "dq");
      near(joined(half.dk), joined(full.dk), 0.5F, "dk");
      near(joined(half.dv), joined(full.dv), 0.5F, "dv");
    }
  }
}

template <class Body>
auto with_products(BFloat16Products products, Body&& body) {
  const Multiplying scope(products);
  return body();
}

TEST(BFloat16Pairs, GiveAttentionTheBitsOfSingleTerms) {
  for (const AttentionCase& c : attention_cases()) {
    SCOPED_TRACE(c.name);
    const Problem<float> in = stored_inputs(c);
    const auto run = [&] { return AttentionRun<BFloat16>(c, in, {}, 2); };
    const auto one = with_products(BFloat16Products::widened, run), two = with_products(BFloat16Products::pairs, run);
    EXPECT_TRUE(one.m == two.m && one.l == two.l) << "m, l";
    EXPECT_TRUE(one.o == two.o) << "o";
    EXPECT_TRUE(one.out_widened == two.out_widened) << "out";
    EXPECT_TRUE(one.dq == two.dq) << "dq";
    EXPECT_TRUE(one.dk == two.dk) << "dk";
    EXPECT_TRUE(one.dv == two.dv) << "dv";
  }
}

TEST(BFloat16Pairs, GiveLinearLayersTheBitsOfSingleTerms) {
  CpuStream stream(2);
  for (const auto& [T, I, O] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{2, 1, 3},
                                {17, 31, 33},
                                {129, 257, 65},
                                {300, 1025, 40},
                                {1500, 40, 333}}) {
    SCOPED_TRACE("T " + std::to_string(T) + " I " + std::to_string(I) + " O " + std::to_string(O));
    const Halves x = random_halves(T * I, 1), w = random_halves(O * I, 2), dy = random_halves(T * O, 3);
    const auto run = [&, T = T, I = I, O = O] {
      Halves y(static_cast<std::size_t>(T * O)), dx(static_cast<std::size_t>(T * I));
      Floats dw(static_cast<std::size_t>(O * I), 0.5F);
      linear_forward(stream, view_of(y, {T, O}), view_of(x, {T, I}), view_of(w, {O, I}), {});
      linear_backward_input(stream, view_of(dx, {T, I}), view_of(dy, {T, O}), view_of(w, {O, I}), false);
      linear_backward_weight(stream, view_of(dw, {O, I}), {}, view_of(dy, {T, O}), view_of(x, {T, I}), true);
      Floats all = wide(y);
      for (const float value : wide(dx)) all.push_back(value);
      all.insert(all.end(), dw.begin(), dw.end());
      return all;
    };
    EXPECT_TRUE(with_products(BFloat16Products::widened, run) == with_products(BFloat16Products::pairs, run));
  }
}

/// x, or 0 of its sign below the smallest normal number.
float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
}

// The instruction's arithmetic, reimplemented for one lane: a fused multiply-add of the upper halves, then one of the
// lower halves, each rounded to nearest; numbers below 2^-126 are 0, as operands and as results.
TEST(BFloat16Pairs, AreTwoFusedMultiplyAdds) {
  constexpr int W = cpu::lanes<float>;
  for (std::uint64_t draw = 0; draw < 20000; ++draw) {
    cpu::Vector<float> sum;
    cpu::Words a, b;
    for (int i = 0; i < W; ++i) {
      const auto bits = [&](std::uint64_t which) {
        return static_cast<std::uint32_t>(
            random_bits(5, Purpose::test, (draw * W + static_cast<std::uint64_t>(i)) * 4 + which));
      };
      // Alternates between any bits, including infinities and NaN, and numbers of similar size, which cancel and round.
      const bool any = draw % 2 == 0;
      const auto near_one = [](std::uint32_t x) { return (x & 0x81ff81ffU) | 0x3e003e00U; };
      a[i] = any ? bits(0) : near_one(bits(0));
      b[i] = any ? bits(1) : near_one(bits(1));
      sum[i] = std::bit_cast<float>(any ? bits(2) : (bits(2) & 0x81ffffffU) | 0x3e000000U);
    }
    const cpu::Vector<float> instruction = cpu::dot(sum, a, b), portable = cpu::dot_by_fma(sum, a, b);
    for (int i = 0; i < W; ++i) {
      const auto number = [](std::uint32_t half) { return flushed(std::bit_cast<float>(half << 16)); };
      const float upper = flushed(std::fma(number(a[i] >> 16), number(b[i] >> 16), flushed(sum[i])));
      const float expected = flushed(std::fma(number(a[i] & 0xffffU), number(b[i] & 0xffffU), upper));
      for (const float actual : {instruction[i], portable[i]}) {
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(actual));
        } else {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(actual), std::bit_cast<std::uint32_t>(expected))
              << std::hex << a[i] << " " << b[i] << " " << std::bit_cast<std::uint32_t>(sum[i]);
        }
      }
    }
  }
}

// Between the inputs and the gradients, bfloat16 only rounds P, dS, and O, each element by about 2^-8 / sqrt(12); sums
// are float32. So the error remains that of one rounding for any number of queries per key, while bfloat16 sums would
// lose more with every query.
TEST(BFloat16Kernels, GradientsOfAttentionDegradeWithNoLength) {
  double first = 0;
  for (const std::int64_t T : {256, 1024, 4096}) {
    const AttentionCase c = whole("length", shape_of(1, 1, 1, 16), T);
    Problem<float> in = make_inputs<float>(c);
    for (Floats* x : {&in.q, &in.dout, &in.k[0], &in.v[0]}) *x = wide(rounded(*x));
    const AttentionRun<BFloat16> half(c, in, {}, 2);
    Problem<double> exact;
    const auto doubles = [](const Floats& x) { return std::vector<double>(x.begin(), x.end()); };
    exact.q = doubles(in.q);
    exact.dout = doubles(in.dout);
    exact.k = {doubles(in.k[0])};
    exact.v = {doubles(in.v[0])};
    compute(exact, c, 2);
    const auto without_start = [](Floats x, float start) {
      for (float& value : x) value -= start;
      return x;
    };
    const double errors[] = {relative_error(without_start(half.dq, 0.25F), exact.dq),
                             relative_error(without_start(half.dk[0], 0.5F), exact.dk[0]),
                             relative_error(without_start(half.dv[0], 0.5F), exact.dv[0])};
    std::printf("%5ld tokens: relative errors of dq %.2e, dk %.2e, dv %.2e\n", static_cast<long>(T), errors[0],
                errors[1], errors[2]);
    const double largest = *std::ranges::max_element(errors);
    EXPECT_LE(largest, 0x1p-8);
    if (first == 0) first = largest;
    EXPECT_LE(largest, 1.5 * first) << T;
  }
}

}  // namespace
}  // namespace ringtrain::testing
