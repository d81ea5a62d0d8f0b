// Attention on a caller's own memory equals the independent reference for every layout, and for randomly distributed
// positions; and each wrong use ends in a message that names the caller's line and mistake.
#include "parallel/attention/attention_over_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "framework/error.h"
#include "tests/parallel/ring_case.h"
#include "tests/support/error_of.h"

namespace ringtrain::testing {
namespace {

using Positions = std::vector<std::int64_t>;

std::vector<Positions> by_layout(Layout layout, std::int64_t S, int ranks) {
  std::vector<Positions> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(shard_positions(layout, S, ranks, rank));
  return all;
}

/// Distributes positions to ranks at random; a rank may get none.
std::vector<Positions> by_chance(std::int64_t S, int ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Positions> all(static_cast<std::size_t>(ranks));
  for (std::int64_t position = 0; position < S; ++position) all[random() % all.size()].push_back(position);
  return all;
}

/// Returns a rank's part of x [B, S, width], in the order of its positions.
template <class T>
std::vector<T> part_of(const std::vector<T>& x, const Positions& positions, std::int64_t S, std::int64_t width) {
  std::vector<T> own;
  for (std::size_t from = 0; from < x.size(); from += static_cast<std::size_t>(S * width)) {
    for (const std::int64_t position : positions) {
      const auto row = x.begin() + static_cast<std::ptrdiff_t>(from) + position * width;
      own.insert(own.end(), row, row + width);
    }
  }
  return own;
}

/// The inverse: puts a rank's rows into x [B, S, width].
void put_part(std::vector<double>& x, const std::vector<double>& own, const Positions& positions, std::int64_t S,
              std::int64_t width) {
  auto next = own.begin();
  for (std::size_t to = 0; to < x.size(); to += static_cast<std::size_t>(S * width)) {
    for (const std::int64_t position : positions) {
      std::copy(next, next + width, x.begin() + static_cast<std::ptrdiff_t>(to) + position * width);
      next += width;
    }
  }
}

Result run(const Problem& p, const std::vector<Positions>& parts) {
  Result result = Result::of(p);
  run_ranks({.ranks = static_cast<int>(parts.size()), .timeout_seconds = 60}, [&](Communicator& world) {
    const Positions& own = parts[static_cast<std::size_t>(world.rank())];
    const std::int64_t T = std::ssize(own), H = p.H * p.D, G = p.G * p.D;
    const auto q = part_of(p.q, own, p.S, H), k = part_of(p.k, own, p.S, G), v = part_of(p.v, own, p.S, G),
               dout = part_of(p.dout, own, p.S, H);
    const auto documents = part_of(p.documents, own, p.S, 1);
    std::vector<double> out(q.size()), lse(p.B * p.H * T), dq(q.size()), dk(k.size()), dv(k.size());
    const auto of_queries = [&](auto& x) { return host_view(x.data(), {p.B, T, p.H, p.D}); };
    const auto of_keys = [&](auto& x) { return host_view(x.data(), {p.B, T, p.G, p.D}); };
    const TensorView rows = host_view(lse.data(), {p.B, p.H, T});
    AttentionOverRing attention(
        world,
        {.B = p.B, .T = T, .H = p.H, .G = p.G, .D = p.D, .dtype = DType::float64, .scale = p.scale(), .threads = 1});
    const std::size_t bytes = attention.bytes();
    for (int pass = 0; pass < 2; ++pass) {  // the data that a pass leaves behind does not matter
      attention.set_tokens(own, documents, p.mask);
      attention.forward(of_queries(q), of_keys(k), of_keys(v), of_queries(out), rows);
      attention.backward(of_queries(dout), of_queries(q), of_keys(k), of_keys(v), of_queries(out), rows, of_queries(dq),
                         of_keys(dk), of_keys(dv));
    }
    EXPECT_EQ(attention.bytes(), bytes) << "a pass allocates";
    attention.close();
    put_part(result.out, out, own, p.S, H);
    put_part(result.dq, dq, own, p.S, H);
    put_part(result.dk, dk, own, p.S, G);
    put_part(result.dv, dv, own, p.S, G);
    for (std::int64_t row = 0; row < p.B * p.H; ++row) {
      for (std::int64_t t = 0; t < T; ++t) result.lse[row * p.S + own[t]] = lse[row * T + t];
    }
  });
  result.unite_ranks();
  return result;
}

void expect_the_reference(const Problem& p, const std::vector<Positions>& parts, const std::string& how) {
  const Result found = run(p, parts), expected = reference_result(p);
  EXPECT_LE(worst_difference(found.out, expected.out), 1e-12) << how << ": " << p.name();
  EXPECT_LE(worst_difference(found.lse, expected.lse), 1e-12) << how << ": " << p.name();
  EXPECT_LE(worst_difference(found.dq, expected.dq), 1e-11) << how << ": " << p.name();
  EXPECT_LE(worst_difference(found.dk, expected.dk), 1e-11) << how << ": " << p.name();
  EXPECT_LE(worst_difference(found.dv, expected.dv), 1e-11) << how << ": " << p.name();
}

TEST(AttentionOverRing, EqualsTheReferenceInEveryLayout) {
  unsigned seed = 1;
  for (const bool documents : {false, true}) {
    for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{false, 0}, AttentionMask{true, 9}}) {
      Problem p{.S = 61, .B = 2, .H = 4, .G = 2, .mask = mask, .with_documents = documents};
      make_inputs(p, seed++);
      for (const int ranks : {1, 2, 4}) {
        for (const Layout layout : all_layouts) expect_the_reference(p, by_layout(layout, p.S, ranks), name_of(layout));
        expect_the_reference(p, by_chance(p.S, ranks, seed), "by chance");
      }
    }
  }
}

TEST(AttentionOverRing, RanksWithoutTokensTakePart) {
  Problem p{.S = 3, .B = 1, .H = 2, .G = 1, .mask = {true, 0}, .with_documents = true};
  make_inputs(p, 7);
  expect_the_reference(p, by_layout(Layout::contiguous, p.S, 4), "four ranks, three tokens");
}

/// Only positions determine which query sees which key: with gaps between them, in the same order, attention is the
/// same.
TEST(AttentionOverRing, PositionsMayLieFarApart) {
  const std::int64_t T = 8, H = 2, D = 4;
  std::vector<double> x(T * H * D);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(3 * i + 1));
  const auto out_at = [&](const Positions& positions) {
    std::vector<double> out(x.size()), lse(H * T);
    launch_threads({.ranks = 1, .timeout_seconds = 60}, [&](Communicator& world) {
      AttentionOverRing attention(
          world, {.T = T, .H = H, .G = H, .D = D, .dtype = DType::float64, .backward = false, .threads = 1});
      attention.set_tokens(positions, {}, {});
      const ConstTensorView of = host_view(x.data(), {1, T, H, D});
      attention.forward(of, of, of, host_view(out.data(), {1, T, H, D}), host_view(lse.data(), {1, H, T}));
    });
    return out;
  };
  constexpr std::int64_t far = 1'000'000'000'000;
  EXPECT_LE(worst_difference(out_at({0, far, far + 1, 2 * far, 2 * far + (1 << 20), 3 * far, 4 * far, 5 * far}),
                             out_at({0, 1, 2, 3, 4, 5, 6, 7})),
            1e-14);
}

/// A rank's arguments for wrong uses: for 4 tokens, 2 query heads, 1 key head, size 8, float32.
struct Arguments {
  std::vector<float> q = std::vector<float>(64), k = std::vector<float>(32), lse = std::vector<float>(8);
  TensorView queries() { return host_view(q.data(), {1, 4, 2, 8}); }
  TensorView keys() { return host_view(k.data(), {1, 4, 1, 8}); }
  TensorView rows() { return host_view(lse.data(), {1, 2, 4}); }
};

constexpr AttentionOverRingOptions four_tokens{.B = 1, .T = 4, .H = 2, .G = 1, .D = 8, .threads = 1};

/// Expects this many ranks to end with a usage error that contains this text.
void expect_error(const std::string& part, int ranks, const RankBody& body) {
  testing::expect_error(ExitCode::usage, part, [&] { launch_threads({.ranks = ranks, .timeout_seconds = 60}, body); });
}

void expect_sentence(const std::string& part, const std::function<void(AttentionOverRing&, Arguments&)>& use) {
  const std::string sentence = testing::error_of(ExitCode::usage, [&] {
    launch_threads({.ranks = 1, .timeout_seconds = 60}, [&](Communicator& world) {
      AttentionOverRing attention(world, four_tokens);
      attention.set_tokens(Positions{0, 1, 2, 3}, {}, {});
      Arguments arguments;
      use(attention, arguments);
    });
  });
  EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("attention_over_ring_test.cpp:"), std::string::npos) << sentence;
}

TEST(AttentionOverRingMisuse, AShapeIsNamedByDimension) {
  expect_sentence(
      "k has the shape [1, 4, 2, 8], but must have [B = 1, T = 4, G = 1, D = 8]",
      [](AttentionOverRing& a, Arguments& x) { a.forward(x.queries(), x.queries(), x.keys(), x.queries(), x.rows()); });
  expect_sentence(
      "lse has the shape [1, 4, 2, 8], but must have [B = 1, H = 2, T = 4]",
      [](AttentionOverRing& a, Arguments& x) { a.forward(x.queries(), x.keys(), x.keys(), x.queries(), x.queries()); });
}

TEST(AttentionOverRingMisuse, ADTypeADeviceAndNoMemoryAreNamed) {
  expect_sentence("v has dtype float64, but must have dtype float32", [](AttentionOverRing& a, Arguments& x) {
    std::vector<double> wide(32);
    a.forward(x.queries(), x.keys(), host_view(wide.data(), {1, 4, 1, 8}), x.queries(), x.rows());
  });
  expect_sentence("out is on cuda:1, but must be on cpu", [](AttentionOverRing& a, Arguments& x) {
    TensorView elsewhere = x.queries();
    elsewhere.device = Device::cuda(1);
    a.forward(x.queries(), x.keys(), x.keys(), elsewhere, x.rows());
  });
  expect_sentence("q is null, but must have memory for 64 elements", [](AttentionOverRing& a, Arguments& x) {
    a.forward(host_view<float>(nullptr, {1, 4, 2, 8}), x.keys(), x.keys(), x.queries(), x.rows());
  });
}

TEST(AttentionOverRingMisuse, WhatIsWrittenIsApartFromAllElse) {
  expect_sentence("out shares memory with q", [](AttentionOverRing& a, Arguments& x) {
    a.forward(x.queries(), x.keys(), x.keys(), x.queries(), x.rows());
  });
  std::vector<float> d(64), dk(32), out(64), both(64);
  expect_sentence("dk shares memory with dv", [&](AttentionOverRing& a, Arguments& x) {
    a.backward(host_view(d.data(), {1, 4, 2, 8}), x.queries(), x.keys(), x.keys(), host_view(out.data(), {1, 4, 2, 8}),
               x.rows(), host_view(both.data(), {1, 4, 2, 8}), host_view(dk.data(), {1, 4, 1, 8}),
               host_view(dk.data(), {1, 4, 1, 8}));
  });
}

TEST(AttentionOverRingMisuse, TokensAreHeldAgainstTheOptions) {
  expect_sentence("5 positions, but this rank's AttentionOverRing was made for T = 4 at most",
                  [](AttentionOverRing& a, Arguments&) {
                    a.set_tokens(Positions{0, 1, 2, 3, 4}, {}, {});
                  });
  expect_sentence("positions[2] is 5, but must be 6 or more", [](AttentionOverRing& a, Arguments&) {
    a.set_tokens(Positions{4, 5, 5}, {}, {});
  });
  expect_sentence("the mask's window must be 0 or more", [](AttentionOverRing& a, Arguments&) {
    a.set_tokens(Positions{0, 1, 2}, {}, {.causal = true, .window = -1});
  });
  expect_sentence("got 2 document ids, but need 0 or B * T = 1 * 3 = 3", [](AttentionOverRing& a, Arguments&) {
    a.set_tokens(Positions{0, 1, 2}, std::vector<std::int32_t>{0, 0}, {});
  });
  expect_sentence("documents[0, 2] is 1 after 2", [](AttentionOverRing& a, Arguments&) {
    a.set_tokens(Positions{0, 1, 2}, std::vector<std::int32_t>{0, 2, 1}, {});
  });
}

TEST(AttentionOverRingMisuse, CallsHaveAnOrder) {
  expect_error("set_tokens must be called before forward and backward", 1, [](Communicator& world) {
    AttentionOverRing attention(world, four_tokens);
    Arguments x;
    attention.forward(x.queries(), x.keys(), x.keys(), x.queries(), x.rows());
  });
  expect_sentence("AttentionOverRing was already closed", [](AttentionOverRing& a, Arguments&) {
    a.close();
    a.set_tokens(Positions{0, 1, 2, 3}, {}, {});
  });
  expect_error("with options.backward set", 1, [](Communicator& world) {
    AttentionOverRing attention(world, {.T = 4, .H = 2, .D = 8, .backward = false, .threads = 1});
    attention.set_tokens(Positions{0, 1, 2, 3}, {}, {});
    Arguments x;
    attention.backward(x.queries(), x.queries(), x.keys(), x.keys(), x.queries(), x.rows(), x.queries(), x.keys(),
                       x.keys());
  });
}

TEST(AttentionOverRingMisuse, OptionsMakeAnAttention) {
  for (const auto& [H, G, dtype, part] :
       {std::tuple{3, 2, DType::float32, "H a multiple of G"}, {2, 1, DType::int32, "but not int32"}}) {
    expect_error(part, 1, [&, H = H, G = G, dtype = dtype](Communicator& world) {
      AttentionOverRing(world, {.T = 4, .H = H, .G = G, .D = 8, .dtype = dtype});
    });
  }
}

TEST(AttentionOverRingMisuse, AScaleAndATimeoutAreNumbers) {
  expect_error("timeout_seconds 0; it must be > 0", 1,
               [](Communicator& world) { AttentionOverRing(world, {.T = 4, .D = 8, .timeout_seconds = 0}); });
  for (const double scale : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0}) {
    expect_error("it must be finite and > 0, or 0 for 1 / sqrt(D)", 1,
                 [&](Communicator& world) { AttentionOverRing(world, {.T = 4, .D = 8, .scale = scale}); });
  }
}

TEST(AttentionOverRingMisuse, TokensAreAFewAffinePieces) {
  expect_error("positions form 20 segments of evenly spaced tokens", 1, [](Communicator& world) {
    AttentionOverRing attention(world, {.T = 40, .D = 8, .threads = 1});
    Positions positions;
    for (std::int64_t i = 0; i < 40; ++i) positions.push_back(i * i * i);
    attention.set_tokens(positions, {}, {});
  });
}

TEST(AttentionOverRingMisuse, RanksThatDifferAreNamed) {
  expect_error("H is 2 on rank 0, and 4 here; deterministic is true on rank 0, and false", 2, [](Communicator& world) {
    AttentionOverRingOptions own = four_tokens;
    own.H += 2 * world.rank();
    own.deterministic = world.rank() == 0;
    AttentionOverRing attention(world, own);
  });
  expect_error("window = 1", 2, [](Communicator& world) {
    AttentionOverRing attention(world, four_tokens);
    attention.set_tokens(Positions{world.rank()}, {}, {.causal = true, .window = world.rank()});
  });
  expect_error("some ranks have document ids, but rank 1 has none", 3, [](Communicator& world) {
    AttentionOverRing attention(world, four_tokens);
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(world.rank() / 2));
    attention.set_tokens(world.rank() > 0 ? Positions{world.rank()} : Positions{}, ids, {});
  });
}

TEST(AttentionOverRingMisuse, APositionOfTwoRanksIsFound) {
  const std::vector<std::pair<Positions, Positions>> pairs{
      {{0, 1, 2, 3}, {3, 4}}, {{0, 3, 6, 9}, {2, 4, 6}}, {{1, 2, 4, 8}, {0, 8}}, {{0, 4, 8, 12}, {2, 7, 12}}};
  for (const auto& [a, b] : pairs) {
    const std::string position = std::to_string(*std::ranges::find_first_of(a, b));
    expect_error("both have the token at position " + position, 2, [&, a = a, b = b](Communicator& world) {
      AttentionOverRing attention(world, four_tokens);
      attention.set_tokens(world.rank() == 0 ? a : b, {}, {});
    });
  }
}

}  // namespace
}  // namespace ringtrain::testing
