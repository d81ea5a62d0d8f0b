// What the attention tests share: a case (shape, mask, one rank's queries and the key blocks that they meet), its
// random inputs, one run of the kernels on it, and the comparison with the reference in double.
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
#include "kernels/attention_sinks.h"
#include "kernels/cpu/attention_simd.h"
#include "reference/attention.h"
#include "tests/support/attention_state.h"

namespace ringtrain {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// One rank's queries, and the key blocks that they meet, in order. Documents, if any, are functions of (sequence,
/// position).
struct AttentionCase {
  std::string name;
  AttentionShape shape;
  SegmentList queries;
  std::vector<SegmentList> blocks;
  std::int64_t document_length = 0;  // mean length; 0: one document, no ids
  std::vector<double> sinks = {};    // [H], or empty
};

inline std::int32_t document_at(const AttentionCase& c, std::int64_t b, std::int64_t position) {
  // Lengths alternate between half of the mean and one and a half times the mean; sequences are offset relative to each
  // other.
  const std::int64_t shifted = position + 3 * b, period = 2 * c.document_length, rest = shifted % period;
  return static_cast<std::int32_t>(2 * (shifted / period) + (rest >= c.document_length / 2 ? 1 : 0));
}

inline AttentionShape shape_of(std::int64_t B, std::int64_t H, std::int64_t G, std::int64_t D, bool causal = true,
                               std::int64_t window = 0) {
  return {B, H, G, D, 1 / std::sqrt(static_cast<double>(D)), {causal, window}};
}

inline AttentionCase whole(const std::string& name, const AttentionShape& shape, std::int64_t T,
                           std::int64_t document_length = 0) {
  return {name, shape, {{0, 1, T}}, {{{0, 1, T}}}, document_length};
}

/// Cases with few queries or keys, with rows that see none, and with segments of any kind, with heads of D elements.
inline std::vector<AttentionCase> awkward_cases(std::int64_t D) {
  const std::int64_t far = 5'000'000'000;
  const AttentionShape causal = shape_of(1, 2, 1, D);
  return {{"no keys", causal, {{0, 1, 70}}, {{}}},
          {"no queries", causal, {}, {{{0, 1, 70}}}},
          {"nothing", causal, {}, {{}}},
          {"a block of none between two", causal, {{0, 1, 70}}, {{{0, 1, 30}}, {}, {{30, 1, 40}}}, 50},
          {"an empty segment", causal, {{0, 1, 30}, {99, 1, 0}, {40, 1, 30}}, {{{5, 1, 0}, {0, 1, 70}}}},
          {"queries before every key", shape_of(2, 2, 1, D), {{0, 1, 230}}, {{{100, 1, 130}}, {{400, 1, 10}}}},
          {"none at all", causal, {{0, 1, 70}}, {{{70, 1, 70}}}},
          {"documents apart", shape_of(1, 2, 2, D, false), {{0, 1, 70}}, {{{90, 1, 100}}}, 40},
          // Most queries of every tile fall between two keys and see none, while their neighbors do: clipping does not
          // help here.
          {"between keys", shape_of(1, 2, 1, D, true, 2), {{0, 1, 690}}, {{{0, 5, 140}}}},
          {"out of the window", shape_of(1, 2, 2, D, true, 20), {{100, 1, 70}}, {{{0, 1, 90}}}},
          {"beyond 32 bits", shape_of(1, 2, 2, D), {{far, 1, 80}}, {{{far - 100, 1, 150}}, {{3, 1, 40}}}},
          {"beyond 32 bits, striped, window",
           shape_of(1, 2, 2, D, true, 300),
           {{far + 31, 3, 290}},
           {{{far, 3, 290}}, {{far + 2, 3, 290}}}},
          {"three segments",
           causal,
           {{5, 1, 170}, {199, 1, 0}, {200, 2, 33}, {300, 1, 164}},
           {{{0, 3, 50}, {200, 1, 180}, {450, 1, 9}}},
           120},
          {"zigzag", causal, {{0, 1, 200}, {700, 1, 150}}, {{{200, 1, 170}, {600, 1, 100}}}}};
}

inline std::vector<std::int64_t> positions_of(const SegmentList& segments) {
  std::vector<std::int64_t> positions;
  for (const Segment& segment : segments) {
    for (std::int64_t i = 0; i < segment.count; ++i) positions.push_back(segment.position(i));
  }
  return positions;
}

/// Tokens of one shard, for the kernels and for the reference.
struct Shard {
  SegmentList segments;
  reference::Tokens of_reference;

  Shard(const AttentionCase& c, const SegmentList& list) : segments(list), of_reference{positions_of(list), {}} {
    for (std::int64_t b = 0; c.document_length > 0 && b < c.shape.B; ++b) {
      for (std::int64_t position : of_reference.positions)
        of_reference.documents.push_back(document_at(c, b, position));
    }
  }
  std::int64_t T() const { return std::ssize(of_reference.positions); }
  AttentionTokens tokens(std::int64_t B) const {
    if (of_reference.documents.empty()) return {segments, {}};
    return {segments, host_view(of_reference.documents.data(), {B, T()})};
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

/// All inputs and outputs of a case, stored as S, summed as A. k, v, dk, dv: one vector for each block.
template <class S, class A = S>
struct Problem {
  std::vector<S> q, dout, out;
  std::vector<A> o, m, l, lse, delta, dq, dsinks;  // o, m, l: the state before it is finished
  std::vector<std::vector<S>> k, v;
  std::vector<std::vector<A>> dk, dv;
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

/// Calls the kernels for a case: forward for all blocks, then backward for all.
template <class S, class A>
class Calls {
 public:
  Calls(Problem<S, A>& run, const AttentionCase& c, int workers)
      : run_(run), c_(c), pool_(workers), stream_(pool_), queries_(c, c.queries) {
    std::int64_t largest = 0;
    for (const SegmentList& block : c.blocks) {
      keys_.emplace_back(c, block);
      largest = std::max(largest, keys_.back().T());
    }
    workspace_.assign(attention_workspace_bytes(stream_, c.shape, DTypeOf<S>::value, queries_.T(), largest), 0xFF);
    for (const double sink : c.sinks) sinks_.push_back(cpu::rounded_to<S>(static_cast<A>(sink)));
  }

  void forward() {
    for (std::vector<A>* x : {&run_.m, &run_.l, &run_.lse, &run_.delta}) x->assign(elements(by_row()), A{7});
    run_.o.assign(elements(by_token()), A{7});
    run_.out.assign(elements(by_token()), S{});
    const TensorView out = view(run_.out, by_token()), lse = view(run_.lse, by_row());
    const AttentionState state{view(run_.o, by_token()), view(run_.m, by_row()), view(run_.l, by_row())};
    testing::reset_state(stream_, state);
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      attention_forward(stream_, c_.shape, view(run_.q, by_token()), view(run_.k[i], by_key(i)),
                        view(run_.v[i], by_key(i)), tokens(queries_), tokens(keys_[i]), state, {}, workspace());
    }
    attention_finalize(stream_, state, out, lse, sinks_.empty() ? TensorView{} : view(sinks_, {c_.shape.H}));
  }

  /// Gradients are added to those that the run already has, if any; those of sinks begin with 3.
  void backward() {
    run_.dq.resize(run_.q.size());
    run_.dk.resize(keys_.size()), run_.dv.resize(keys_.size());
    const TensorView dout = view(run_.dout, by_token()), lse = view(run_.lse, by_row());
    const TensorView delta = view(run_.delta, by_row());
    attention_delta(stream_, delta, dout, view(run_.out, by_token()));
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const bool begun = !run_.dk[i].empty();  // by another rank
      run_.dk[i].resize(run_.k[i].size(), A{1e30F});
      run_.dv[i].resize(run_.v[i].size(), A{1e30F});
      attention_backward(stream_, c_.shape, view(run_.q, by_token()), view(run_.k[i], by_key(i)),
                         view(run_.v[i], by_key(i)), dout, lse, delta, tokens(queries_), tokens(keys_[i]),
                         view(run_.dq, by_token()), view(run_.dk[i], by_key(i)), view(run_.dv[i], by_key(i)),
                         workspace(), /*accumulate=*/begun);
    }
    if (sinks_.empty()) return;
    run_.dsinks.assign(sinks_.size(), A{3});
    attention_sinks_backward(stream_, view(run_.dsinks, {c_.shape.H}), lse, delta, view(sinks_, {c_.shape.H}));
  }

 private:
  Shape by_token() const { return {c_.shape.B, queries_.T(), c_.shape.H, c_.shape.D}; }
  Shape by_row() const { return {c_.shape.B, c_.shape.H, queries_.T()}; }
  Shape by_key(std::size_t block) const { return {c_.shape.B, keys_[block].T(), c_.shape.G, c_.shape.D}; }
  static std::size_t elements(const Shape& shape) { return static_cast<std::size_t>(shape.numel()); }
  AttentionTokens tokens(const Shard& shard) const { return shard.tokens(c_.shape.B); }
  TensorView workspace() { return view(workspace_, {std::ssize(workspace_)}); }
  template <class T>
  static TensorView view(std::vector<T>& x, const Shape& shape) {
    return host_view(x.data(), shape);
  }

  Problem<S, A>& run_;
  const AttentionCase& c_;
  ThreadPool pool_;
  Stream stream_;
  Shard queries_;
  std::vector<Shard> keys_;
  std::vector<std::uint8_t> workspace_;
  std::vector<S> sinks_;
};

/// Runs forward, then backward; dk and dv are added to those that the run already has, if any.
template <class T>
void compute(Problem<T>& run, const AttentionCase& c, int workers) {
  Calls<T, T> calls(run, c, workers);
  run.dq.clear();
  calls.forward();
  calls.backward();
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

/// Expects max|actual - expected| <= tolerance * max|expected|; infinities must be equal. Gradients that are 0
/// everywhere (each row sees one key) are compared relative to the inputs' size, which is 1.
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

inline SegmentList all_keys(const AttentionCase& c) {
  SegmentList all;
  for (const SegmentList& block : c.blocks) all.insert(all.end(), block.begin(), block.end());
  return all;
}

struct Expected {
  reference::Forward forward;
  reference::Backward backward;
};

template <class T>
Expected expect_of(const Problem<T>& run, const AttentionCase& c) {
  const auto& s = c.shape;
  const reference::Attention a{s.B, s.H, s.G, s.D, s.scale, s.mask.causal, s.mask.window, s.softcap, c.sinks};
  const reference::Tokens from = Shard(c, c.queries).of_reference, to = Shard(c, all_keys(c)).of_reference;
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
  for (T& gradient : run.dsinks) gradient -= 3;
  expect_close(widened(run.dsinks), expected.backward.dsinks, tolerance, "dsinks");
}

inline void check_both(const AttentionCase& c) {
  check<double>(c, 1e-11);
  check<float>(c, cpu::fused ? 2e-6 : 4e-6);  // scores and gradients round twice as often
}

}  // namespace ringtrain
