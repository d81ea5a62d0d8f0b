// Compares every kernel on bfloat16 tensors on a CPU with the same kernel on float32 tensors that have the same
// numbers: sums have the same bits, and stored values are the float32 result rounded once, to nearest, ties to even. So
// the bounds of the float32 kernels, which their own tests compare with double, also apply with an additional half unit
// of the last place. Sizes include whole and partial vectors; special paths of kernels (one row, many rows, deep sums)
// are included. Attention: bfloat16_attention_test.cpp.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>

#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/decode_attention.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "tests/kernels/halves.h"
#include "tests/support/kernel_harness.h"

namespace ringtrain::testing {
namespace {

void expect_bits(const Halves& actual, const Floats& float32, const std::string& what) {
  ASSERT_EQ(actual.size(), float32.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].bits, nearest(float32[i]).bits)
        << what << " at " << i << ": " << actual[i].value() << ", float32 " << float32[i];
  }
}

/// Some tensors of one call in both dtypes. Outputs are initialized with other numbers.
struct Pair {
  Halves half;
  Floats full;
  Pair(std::int64_t n, std::uint64_t seed, double stddev = 1)
      : half(random_halves(n, seed, stddev)), full(wide(half)) {}
};

/// Calls body(of, i) with of(pair, shape) a view of the pair's bfloat16 numbers, i = 0, and then of its float32 ones.
template <class Body>
void in_both(const Body& body) {
  body([](Pair& p, const Shape& s) { return view_of(p.half, s); }, 0);
  body([](Pair& p, const Shape& s) { return view_of(p.full, s); }, 1);
}

const std::int64_t lengths[] = {1, 7, 8, 31, 100, 20000};

TEST(BFloat16Vectors, RoundToNearestEvenAsOneNumberDoes) {
  // Every upper half with lower halves around the tie, below and above; including infinities, NaN, and denormals.
  Floats x;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      x.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  Halves y(x.size());
  CpuStream stream;
  convert(stream, view_of(y), view_of(x));
  Floats back(x.size());
  convert(stream, view_of(back), view_of(y));
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y[i].bits, BFloat16::rounded(x[i]).bits) << x[i];
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(back[i]));
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), static_cast<std::uint32_t>(y[i].bits) << 16);
    if (std::abs(x[i]) >= std::bit_cast<float>(0x7f7f0000U)) continue;
    ASSERT_EQ(y[i].bits, nearest(x[i]).bits) << x[i];
  }
}

TEST(BFloat16Kernels, ElementwiseRoundOnce) {
  CpuStream stream;
  for (const std::int64_t n : lengths) {
    const std::string size = " of " + std::to_string(n);
    Pair x(n, 1), y(n, 2);
    in_both([&](auto of, int) { scale(stream, of(x, {n}), 0.3); });
    expect_bits(x.half, x.full, "scale" + size);
    x.full = wide(x.half);
    in_both([&](auto of, int) { add(stream, of(y, {n}), of(x, {n})); });
    expect_bits(y.half, y.full, "add" + size);
    fill(stream, view_of(y.half), 0.3);
    expect_bits(y.half, Floats(y.half.size(), 0.3F), "fill" + size);
    double squares[2];
    Pair normals(n, 3);
    in_both([&](auto of, int i) {
      sum_of_squares(stream, host_view(squares + i, {1}), of(x, {n}), false);
      fill_normal(stream, of(normals, {n}), 0.02, 3, 5);
    });
    EXPECT_EQ(squares[0], squares[1]);
    expect_bits(normals.half, normals.full, "fill_normal" + size);
  }
}

TEST(BFloat16Kernels, ActivationsRoundOnce) {
  CpuStream stream;
  for (const std::int64_t n : lengths) {
    Pair gate(n, 1, 3), up(n, 2), dy(n, 3), y(n, 4), a(n, 5), b(n, 6);
    for (const Activation activation : {Activation::silu, Activation::gelu}) {
      for (const bool gated : {true, false}) {
        const std::string what = fmt::format("activation {}, gated {}", static_cast<int>(activation), gated);
        const auto run = [&](const auto& of) {
          const auto if_gated = [&](Pair& x) { return gated ? of(x) : TensorView{}; };
          activation_forward(stream, activation, of(y), of(gate), if_gated(up));
          activation_backward(stream, activation, of(a), if_gated(b), of(dy), of(gate), if_gated(up), of(y));
        };
        run([](Pair& x) { return view_of(x.half); });
        run([](Pair& x) { return view_of(x.full); });
        expect_bits(y.half, y.full, what);
        expect_bits(a.half, a.full, what + " backward");
        expect_bits(b.half, b.full, what + " backward of up");
      }
    }
  }
}

TEST(BFloat16Kernels, NormsRoundOnceAndSumInFloat32) {
  CpuStream stream;
  for (const auto& [T, C] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {5, 17}, {300, 72}, {40, 768}}) {
    const Shape shape{T, C};
    for (const bool layer : {false, true}) {
      for (const bool accumulate : {false, true}) {
        Pair x(T * C, 1), w(C, 2), b(C, 3), y(T * C, 4), dy(T * C, 5), dx(T * C, 6);
        Floats mean[2], rstd[2], dw[2], db[2];
        for (int i = 0; i < 2; ++i) {
          mean[i].resize(x.full.size() / w.full.size()), rstd[i] = mean[i];
          dw[i] = random_vector<float>(C, 7);
          db[i] = random_vector<float>(C, 8);
        }
        in_both([&](auto of, int i) {
          const TensorView rstd_view = view_of(rstd[i]), nothing;
          const TensorView mean_view = layer ? view_of(mean[i]) : nothing, db_view = layer ? view_of(db[i]) : nothing;
          norm_forward(stream, of(y, shape), mean_view, rstd_view, of(x, shape), of(w, {C}),
                       layer ? of(b, {C}) : nothing, 1e-5, layer ? 0 : 1);
          norm_backward(stream, of(dx, shape), view_of(dw[i]), db_view, of(dy, shape), of(x, shape), of(w, {C}),
                        mean_view, rstd_view, accumulate, layer ? 0 : 1);
        });
        expect_bits(y.half, y.full, "y");
        expect_bits(dx.half, dx.full, "dx");
        EXPECT_TRUE(mean[0] == mean[1] && rstd[0] == rstd[1]);
        EXPECT_TRUE(dw[0] == dw[1] && db[0] == db[1]);
      }
    }
  }
}

TEST(BFloat16Kernels, RopeRoundsOnce) {
  CpuStream stream;
  for (const std::int64_t D : {2, 24, 64, 130}) {
    const std::int64_t T = 9, H = 3;
    const Shape shape{T, H, D};
    std::vector<std::int32_t> positions(T);
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(37 * i);
    Floats table(static_cast<std::size_t>(T * D));
    rope_table(stream, view_of(table, {T, D}), view_of(positions), rope_frequencies(D, 1e4, {}));
    Pair x(T * H * D, 1), dx(T * H * D, 2);
    Floats gradient = random_vector<float>(T * H * D, 3);  // sums, which are never rounded
    in_both([&](auto of, int) {
      rope_forward(stream, of(x, shape), view_of(table, {T, D}));
      rope_backward(stream, of(dx, shape), view_of(gradient, shape), view_of(table, {T, D}));
    });
    expect_bits(x.half, x.full, "rotated");
    expect_bits(dx.half, dx.full, "rotated back");
  }
}

TEST(BFloat16Kernels, EmbeddingGathersAndAddsInFloat32) {
  CpuStream stream;
  const std::int64_t rows = 11, C = 21, T = 40;
  std::vector<std::int32_t> ids(T);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i % rows);
  Pair table(rows * C, 1), y(T * C, 2), dy(T * C, 3);
  for (const bool accumulate : {false, true}) {
    in_both([&](auto of, int) {
      embedding_forward(stream, of(y, {T, C}), view_of(ids), of(table, {rows, C}), accumulate);
    });
    expect_bits(y.half, y.full, "embedding");
    y.full = wide(y.half);
  }
  Floats sums[2] = {random_vector<float>(rows * C, 4), random_vector<float>(rows * C, 4)};
  in_both([&](auto of, int i) {
    embedding_backward(stream, view_of(sums[i], {rows, C}), view_of(ids), of(dy, {T, C}));
  });
  EXPECT_TRUE(sums[0] == sums[1]);
}

TEST(BFloat16Kernels, CrossEntropyRoundsItsGradientOnce) {
  CpuStream stream;
  for (const double softcap : {0.0, 5.0}) {
    for (const auto& [n, V] : {std::pair<std::int64_t, std::int64_t>{3, 5}, {6, 257}, {2, 5000}}) {
      Pair logits(n * V, 1, 3);
      if (softcap > 0) {
        in_both([&, n = n, V = V](auto of, int) { cap_logits(stream, of(logits, {n, V}), softcap); });
        expect_bits(logits.half, logits.full, "capped");
        logits.full = wide(logits.half);
      }
      std::vector<std::int32_t> labels(static_cast<std::size_t>(n));
      for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 3) * 2 - 1;
      const Floats weights(labels.size(), 0.7F);
      const Halves before = logits.half;
      std::vector<double> nll[2] = {std::vector<double>(labels.size()), std::vector<double>(labels.size())};
      in_both([&, n = n, V = V](auto of, int i) {
        cross_entropy(stream, of(logits, {n, V}), view_of(nll[i]), view_of(labels), view_of(weights), 3, true, softcap);
      });
      EXPECT_TRUE(nll[0] == nll[1]);
      for (std::int64_t t = 0; t < n; ++t) {  // the plain formula in double, to half a unit of the last place and 1e-5
        const BFloat16* const row = before.data() + t * V;
        double sum = 0;
        for (std::int64_t i = 0; i < V; ++i) sum += std::exp(static_cast<double>(row[i].value()));
        for (std::int64_t i = 0; i < V; ++i) {
          const double logit = static_cast<double>(row[i].value()), bent = softcap > 0 ? logit / softcap : 0;
          const double label = labels[static_cast<std::size_t>(t)];
          const double p = std::exp(logit) / sum - (static_cast<double>(i) == label ? 1 : 0);
          const double expected = label < 0 ? 0 : p * static_cast<double>(0.7F) / 3 * (1 - bent * bent);
          const double found = static_cast<double>(logits.half[static_cast<std::size_t>(t * V + i)].value());
          EXPECT_LE(std::abs(found - expected), std::abs(expected) * (0x1p-8 + 1e-5)) << t << " " << i;
        }
      }
    }
  }
}

TEST(BFloat16Kernels, AdamWKeepsMasterWeightsAndRoundsThem) {
  CpuStream stream;
  for (const std::int64_t n : {1, 13, 40000}) {
    Floats w[2], m[2], v[2];
    const Floats g = random_vector<float>(n, 1);
    Halves model(g.size());
    for (int i = 0; i < 2; ++i) {
      w[i] = random_vector<float>(n, 2);
      m[i] = random_vector<float>(n, 3, 0.1);
      v[i] = Floats(g.size(), 0.3F);
    }
    const AdamW hyper{1e-3, 0.9, 0.95, 1e-8, 4, 0.5};
    for (int i = 0; i < 2; ++i) {
      const AdamWSlice slice{
          view_of(w[i]), view_of(m[i]), view_of(v[i]), view_of(g), i == 0 ? view_of(model) : TensorView{}, 0.1};
      adamw_update(stream, {&slice, 1}, hyper);
    }
    EXPECT_TRUE(w[0] == w[1] && m[0] == m[1] && v[0] == v[1]);
    expect_bits(model, w[0], "weights of the model");
  }
}

struct Sizes {
  std::int64_t T, I, O;
};

TEST(BFloat16Kernels, ProductsRoundOnceHoweverDeep) {
  CpuStream stream;
  // Deeper than the packed part of an operand (1,024), with more rows than fit in the scratch (1,024), and more columns
  // than one part has.
  for (const auto& [T, I, O] : {Sizes{1, 1, 1},
                                {1, 700, 61},
                                {3, 17, 1},
                                {17, 3, 257},
                                {5, 0, 7},
                                {0, 5, 7},
                                {40, 2500, 70},
                                {1500, 40, 33},
                                {70, 33, 1600},
                                {2100, 1100, 20}}) {
    SCOPED_TRACE("T " + std::to_string(T) + " I " + std::to_string(I) + " O " + std::to_string(O));
    Pair x(T * I, 1), w(O * I, 2), dy(T * O, 3), bias(O, 4), residual(T * O, 5), y(T * O, 6), dx(T * I, 7);
    const Shape xs{T, I}, ys{T, O}, ws{O, I};
    Floats dw[2], dbias[2];
    for (int i = 0; i < 2; ++i) {
      dw[i] = random_vector<float>(O * I, 8);
      dbias[i] = random_vector<float>(O, 9);
    }
    const auto run = [&, O = O](bool biased, bool has_residual, auto of, int i) {
      const ConstTensorView b = biased ? of(bias, {O}) : TensorView{};
      linear_forward(stream, of(y, ys), of(x, xs), of(w, ws), b, has_residual ? of(residual, ys) : TensorView{});
      linear_backward_input(stream, of(dx, xs), of(dy, ys), of(w, ws), false);
      linear_backward_weight(stream, view_of(dw[i], ws), view_of(dbias[i]), of(dy, ys), of(x, xs), true);
    };
    for (const bool biased : {false, true}) {
      for (const bool has_residual : {false, true}) {
        in_both([&](auto of, int i) { run(biased, has_residual, of, i); });
        expect_bits(y.half, y.full, has_residual ? "y with a residual" : "y");  // rounded once: it is added to the sums
      }
    }
    expect_bits(dx.half, dx.full, "dx");
    EXPECT_TRUE(dw[0] == dw[1]) << "dw";
    EXPECT_TRUE(dbias[0] == dbias[1]) << "dbias";

    // The sum of the product and the existing value, rounded once.
    Floats sum(dx.full.size());
    linear_backward_input(stream, view_of(sum, xs), view_of(dy.full, ys), view_of(w.full, ws), false);
    const Halves before = dx.half = random_halves(T * I, 10);
    linear_backward_input(stream, view_of(dx.half, xs), view_of(dy.half, ys), view_of(w.half, ws), true);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i].value();
    expect_bits(dx.half, sum, "dx added");
    if (O == 0) continue;
    linear_forward(stream, view_of(sum = Floats(y.full.size()), ys), view_of(x.full, xs), view_of(w.full, ws), {});
    const Halves there = y.half = random_halves(T * O, 11);
    linear_forward(stream, view_of(y.half, ys), view_of(x.half, xs), view_of(w.half, ws), {}, view_of(y.half, ys));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += there[i].value();
    expect_bits(y.half, sum, "y added to");
  }
}

TEST(BFloat16Kernels, BitsDoNotDependOnThreads) {
  const std::int64_t T = 1300, I = 1100, O = 90;
  const Halves x = random_halves(T * I, 1), w = random_halves(O * I, 2), dy = random_halves(T * O, 3);
  expect_same_bits_for_any_workers([&](Stream& stream) {
    Halves all(static_cast<std::size_t>(T * O + T * I));
    linear_forward(stream, host_view(all.data(), {T, O}), view_of(x, {T, I}), view_of(w, {O, I}), {});
    linear_backward_input(stream, host_view(all.data() + T * O, {T, I}), view_of(dy, {T, O}), view_of(w, {O, I}),
                          false);
    return all;
  });
}

TEST(BFloat16Kernels, DecodeAttentionSumsAsFloat32Does) {
  CpuStream stream;
  for (const auto& [H, G, D] : {std::tuple{1, 1, 1}, {4, 2, 20}, {3, 3, 128}}) {
    for (const std::int64_t T : {0, 1, 129, 700}) {
      const AttentionShape shape{.B = 1, .H = H, .G = G, .D = D, .scale = 0.3, .mask = {}};
      Pair q(H * D, 1), k(T * G * D, 2), v(T * G * D, 3);
      Floats results[2];
      in_both([&, H = H, G = G, D = D](auto of, int i) {
        Floats& all = results[i];
        all.assign(static_cast<std::size_t>(H) * (D + 2), 77);
        Floats workspace(static_cast<std::size_t>(decode_attention_workspace(shape, T)), 77);
        const AttentionState state{host_view(all.data(), {1, 1, H, D}), host_view(all.data() + H * D, {1, H, 1}),
                                   host_view(all.data() + H * D + H, {1, H, 1})};
        decode_attention(stream, shape, of(q, {H, D}), of(k, {T, G, D}), of(v, {T, G, D}), state, view_of(workspace));
      });
      EXPECT_TRUE(results[0] == results[1]) << T;
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
