// What the attention tests share: a case (shape, mask, one rank's queries and the key blocks it meets), its random
// inputs, one run of the kernels over it, and the comparison with the reference in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "framework/random.h"
#include "kernels/attention.h"
#include "kernels/cpu/attention_simd.h"
#include "reference/attention.h"
#include "tests/support/attention_state.h"

namespace ringtrain {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// One rank's queries, and the key blocks it meets in order. Documents, if any, are functions of (sequence, position).
struct AttentionCase {
  std::string name;
  AttentionShape shape;
  SegmentList queries;
  std::vector<SegmentList> blocks;
  std::int64_t document_length = 0;  // mean length; 0: one document, no ids
};

inline std::int32_t document_at(const AttentionCase& c, std::int64_t b, std::int64_t position) {
  // Lengths alternate between half and one and a half times the mean; sequences are offset against each other.
  const std::int64_t shifted = position + 3 * b, period = 2 * c.document_length, rest = shifted % period;
  return static_cast<std::int32_t>(2 * (shifted / period) + (rest >= c.document_length / 2 ? 1 : 0));
}

/// Tokens of one shard, for the kernels and for the reference.
struct Shard {
  SegmentList segments;
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> documents;  // [B, T]

  Shard(const AttentionCase& c, const SegmentList& list) : segments(list) {
    for (const Segment& segment : list) {
      for (std::int64_t i = 0; i < segment.count; ++i) positions.push_back(segment.position(i));
    }
    for (std::int64_t b = 0; c.document_length > 0 && b < c.shape.B; ++b) {
      for (std::int64_t position : positions) documents.push_back(document_at(c, b, position));
    }
  }
  std::int64_t T() const { return static_cast<std::int64_t>(positions.size()); }
  AttentionTokens tokens(std::int64_t B) const {
    return {segments, documents.empty() ? TensorView{} : host_view(documents.data(), {B, T()})};
  }
};

template <class T>
std::vector<T> normals(std::int64_t n, std::uint64_t seed) {
  std::vector<T> x(n);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(random_normal(seed, Purpose::test, i));
  return x;
}

template <class T>
std::vector<double> widened(const std::vector<T>& x) {
  return {x.begin(), x.end()};
}

/// All inputs and outputs of a case. k, v, dk, dv: one vector for each block.
template <class T>
struct Problem {
  std::vector<T> q, dout, out, lse, delta, dq;
  std::vector<std::vector<T>> k, v, dk, dv;
};

template <class T>
Problem<T> make_inputs(const AttentionCase& c) {
  const auto& s = c.shape;
  Problem<T> run;
  const std::int64_t Tq = token_count(c.queries);
  run.q = normals<T>(s.B * Tq * s.H * s.D, 1);
  run.dout = normals<T>(s.B * Tq * s.H * s.D, 2);
  for (std::size_t block = 0; block < c.blocks.size(); ++block) {
    const std::int64_t n = s.B * token_count(c.blocks[block]) * s.G * s.D;
    run.k.push_back(normals<T>(n, 100 + block));
    run.v.push_back(normals<T>(n, 200 + block));
  }
  return run;
}

/// Returns memory that serves as the workspace of any call of a case whose tensors have the dtype.
inline std::vector<std::uint8_t> workspace_memory(const Stream& stream, const AttentionCase& c, DType dtype) {
  std::int64_t largest = 0;
  for (const SegmentList& block : c.blocks) largest = std::max(largest, token_count(block));
  return std::vector<std::uint8_t>(attention_workspace_bytes(stream, c.shape, dtype, token_count(c.queries), largest),
                                   0xFF);
}

/// Runs forward over all blocks, then backward over all; dk and dv continue what the run already holds, if anything.
template <class T>
void compute(Problem<T>& run, const AttentionCase& c, int workers) {
  ThreadPool pool(workers);
  Stream stream(pool);
  const auto& s = c.shape;
  const Shard queries(c, c.queries);
  const std::int64_t Tq = queries.T();
  std::vector<std::uint8_t> memory = workspace_memory(stream, c, DTypeOf<T>::value);
  const TensorView workspace = host_view(memory.data(), {static_cast<std::int64_t>(memory.size())});

  const Shape by_token{s.B, Tq, s.H, s.D}, by_row{s.B, s.H, Tq};
  const auto elements = [](const Shape& shape) { return static_cast<std::size_t>(shape.numel()); };
  run.out.assign(elements(by_token), T{7});
  run.lse.assign(elements(by_row), T{7});
  run.delta.assign(elements(by_row), T{7});
  run.dq.assign(elements(by_token), T{0});
  std::vector<T> l(elements(by_row), T{7});
  const TensorView q = host_view(run.q.data(), by_token), out = host_view(run.out.data(), by_token);
  const TensorView lse = host_view(run.lse.data(), by_row);
  const AttentionState state{out, lse, host_view(l.data(), by_row)};
  testing::reset_state(stream, state);
  for (std::size_t i = 0; i < c.blocks.size(); ++i) {
    const Shard keys(c, c.blocks[i]);
    const Shape kv{s.B, keys.T(), s.G, s.D};
    attention_forward(stream, s, q, host_view(run.k[i].data(), kv), host_view(run.v[i].data(), kv), queries.tokens(s.B),
                      keys.tokens(s.B), state, {}, workspace);
  }
  attention_finalize(stream, state, out, lse);
  const TensorView dout = host_view(run.dout.data(), by_token), delta = host_view(run.delta.data(), by_row);
  attention_delta(stream, delta, dout, out);
  run.dk.resize(c.blocks.size()), run.dv.resize(c.blocks.size());
  for (std::size_t i = 0; i < c.blocks.size(); ++i) {
    const Shard keys(c, c.blocks[i]);
    const Shape kv{s.B, keys.T(), s.G, s.D};
    const bool begun = !run.dk[i].empty();  // by another rank
    run.dk[i].resize(run.k[i].size(), T{1e30F});
    run.dv[i].resize(run.v[i].size(), T{1e30F});
    attention_backward(stream, s, q, host_view(run.k[i].data(), kv), host_view(run.v[i].data(), kv), dout, lse, delta,
                       queries.tokens(s.B), keys.tokens(s.B), host_view(run.dq.data(), by_token),
                       host_view(run.dk[i].data(), kv), host_view(run.dv[i].data(), kv), workspace,
                       /*accumulate=*/begun);
  }
}

/// Joins blocks [B, Tk_i, G, D] along their tokens.
template <class T>
std::vector<double> joined(const AttentionCase& c, const std::vector<std::vector<T>>& blocks) {
  std::vector<double> all;
  for (std::int64_t b = 0; b < c.shape.B; ++b) {
    for (const std::vector<T>& block : blocks) {
      const auto n = static_cast<std::ptrdiff_t>(block.size()) / c.shape.B;
      all.insert(all.end(), block.begin() + b * n, block.begin() + (b + 1) * n);
    }
  }
  return all;
}

/// Expects max|actual - expected| <= tolerance * max|expected|; infinities must be the same ones. Gradients that are 0
/// throughout (each row sees one key) are held against the inputs' size, which is 1.
inline void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::isinf(expected[i])) {
      EXPECT_EQ(actual[i], expected[i]) << what << " at " << i;
      continue;
    }
    ASSERT_TRUE(std::isfinite(actual[i])) << what << " at " << i << " is " << actual[i];
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(actual[i] - expected[i]));
  }
  const double allowed = tolerance * (largest > 0 ? largest : 1);
  EXPECT_LE(worst, allowed) << what << ": achieved/allowed " << worst / allowed;
}

struct Expected {
  reference::Forward forward;
  reference::Backward backward;
};

template <class T>
Expected expect_of(const Problem<T>& run, const AttentionCase& c) {
  const auto& s = c.shape;
  const reference::Attention a{s.B, s.H, s.G, s.D, s.scale, s.mask.causal, s.mask.window, s.softcap, {}};
  SegmentList all;
  for (const SegmentList& block : c.blocks) all.insert(all.end(), block.begin(), block.end());
  const Shard queries(c, c.queries), keys(c, all);
  const reference::Tokens from{queries.positions, queries.documents}, to{keys.positions, keys.documents};
  const auto q = widened(run.q), k = joined(c, run.k), v = joined(c, run.v);
  reference::Forward forward = reference::forward(a, q, k, v, from, to);
  reference::Backward backward = reference::backward(a, q, k, v, forward.out, widened(run.dout), from, to);
  return {std::move(forward), std::move(backward)};
}

template <class T>
void check(const AttentionCase& c, double tolerance, int workers = 2) {
  SCOPED_TRACE(c.name);
  Problem<T> run = make_inputs<T>(c);
  compute(run, c, workers);
  const Expected expected = expect_of(run, c);
  expect_close(widened(run.out), expected.forward.out, tolerance, "out");
  expect_close(widened(run.lse), expected.forward.lse, tolerance, "lse");
  expect_close(widened(run.dq), expected.backward.dq, tolerance, "dq");
  expect_close(joined(c, run.dk), expected.backward.dk, tolerance, "dk");
  expect_close(joined(c, run.dv), expected.backward.dv, tolerance, "dv");
}

inline void check_both(const AttentionCase& c) {
  check<double>(c, 1e-11);
  check<float>(c, cpu::fused ? 2e-6 : 4e-6);  // scores and gradients round twice as often
}

inline AttentionShape shape_of(std::int64_t B, std::int64_t H, std::int64_t G, std::int64_t D, bool causal = true,
                               std::int64_t window = 0) {
  return {B, H, G, D, 1 / std::sqrt(static_cast<double>(D)), {causal, window}};
}

inline AttentionCase whole(const std::string& name, const AttentionShape& shape, std::int64_t T,
                           std::int64_t document_length = 0) {
  return {name, shape, {{0, 1, T}}, {{{0, 1, T}}}, document_length};
}

}  // namespace ringtrain
