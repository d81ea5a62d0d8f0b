// Attention sinks: rows that are finished with them are what the reference computes with them, whose gradients backward
// gives; held against it in double, on blocks that came one after the other, and for rows without a key.
#include "kernels/attention_sinks.h"

#include "tests/kernels/attention_case.h"
#include "tests/support/kernel_harness.h"

namespace ringtrain {
namespace {

using namespace ringtrain::testing;

/// Returns the running sums of rows that were finished: their out and logsumexp are o and m of a state.
template <class T>
std::vector<T> sums_of(const std::vector<T>& logsumexps) {
  std::vector<T> l;
  for (const T logsumexp : logsumexps) l.push_back(std::isinf(logsumexp) ? T{0} : T{1});
  return l;
}

template <class T>
void check_sinks(const AttentionCase& c, const std::vector<double>& sinks, double tolerance) {
  SCOPED_TRACE(c.name);
  const AttentionShape& s = c.shape;
  CpuStream stream;
  Problem<T> run = make_inputs<T>(c);
  compute(run, c, 2);  // without sinks, and gradients that do not count
  const Shard queries(c, c.queries);
  const std::int64_t Tq = queries.T();
  const Shape by_token{s.B, Tq, s.H, s.D}, by_row{s.B, s.H, Tq};
  std::vector<T> scores(sinks.begin(), sinks.end()), dsinks(sinks.size(), T{3});
  const TensorView out = host_view(run.out.data(), by_token), lse = host_view(run.lse.data(), by_row);
  const TensorView dout = host_view(run.dout.data(), by_token), delta = host_view(run.delta.data(), by_row);
  std::vector<T> l = sums_of(run.lse);
  attention_sinks_finalize(stream, {out, lse, host_view(l.data(), by_row)}, out, lse, view_of(scores));
  attention_delta(stream, delta, dout, out);
  attention_sinks_backward(stream, view_of(dsinks), lse, delta, view_of(scores));
  std::fill(run.dq.begin(), run.dq.end(), T{0});
  std::vector<std::uint8_t> memory(attention_workspace_bytes(stream, s, DTypeOf<T>::value, Tq, 1 << 12));
  for (std::size_t i = 0; i < c.blocks.size(); ++i) {
    const Shard keys(c, c.blocks[i]);
    const Shape kv{s.B, keys.T(), s.G, s.D};
    attention_backward(stream, s, host_view(run.q.data(), by_token), host_view(run.k[i].data(), kv),
                       host_view(run.v[i].data(), kv), dout, lse, delta, queries.tokens(s.B), keys.tokens(s.B),
                       host_view(run.dq.data(), by_token), host_view(run.dk[i].data(), kv),
                       host_view(run.dv[i].data(), kv),
                       host_view(memory.data(), {static_cast<std::int64_t>(memory.size())}), /*accumulate=*/false);
  }

  reference::Attention a{s.B, s.H, s.G, s.D, s.scale, s.mask.causal, s.mask.window, s.softcap, sinks};
  SegmentList all;
  for (const SegmentList& block : c.blocks) all.insert(all.end(), block.begin(), block.end());
  const Shard keys(c, all);
  const reference::Tokens from{queries.positions, queries.documents}, to{keys.positions, keys.documents};
  const auto q = widened(run.q), k = joined(c, run.k), v = joined(c, run.v);
  const reference::Forward forward = reference::forward(a, q, k, v, from, to);
  reference::Backward backward = reference::backward(a, q, k, v, forward.out, widened(run.dout), from, to);
  for (double& gradient : backward.dsinks) gradient += 3;
  expect_close(widened(run.out), forward.out, tolerance, "out");
  expect_close(widened(run.lse), forward.lse, tolerance, "lse");
  expect_close(widened(run.dq), backward.dq, tolerance, "dq");
  expect_close(joined(c, run.dk), backward.dk, tolerance, "dk");
  expect_close(joined(c, run.dv), backward.dv, tolerance, "dv");
  expect_close(widened(dsinks), backward.dsinks, tolerance, "dsinks");
}

std::vector<double> sinks_of(std::int64_t H) {
  std::vector<double> sinks;
  for (std::int64_t h = 0; h < H; ++h) sinks.push_back(1.5 * static_cast<double>(h) - 2);
  return sinks;
}

TEST(AttentionSinks, AgreeWithTheReference) {
  for (const double softcap : {0.0, 2.0}) {
    for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{false, 0}, AttentionMask{true, 30}}) {
      for (const std::int64_t documents : {0, 40}) {
        AttentionCase c = whole("softcap " + std::to_string(softcap), shape_of(2, 4, 2, 20, mask.causal, mask.window),
                                211, documents);
        c.shape.softcap = softcap;
        check_sinks<double>(c, sinks_of(4), 1e-11);
        check_sinks<float>(c, sinks_of(4), 5e-6);
      }
    }
  }
}

TEST(AttentionSinks, OfBlocksOnARing) {
  for (const Layout layout : all_layouts) {
    AttentionCase c{name_of(layout), shape_of(1, 2, 1, 16), {}, {}, 30};
    c.queries = shard_segments(layout, 203, 4, 2);
    for (int hop = 0; hop < 4; ++hop) c.blocks.push_back(shard_segments(layout, 203, 4, (2 - hop + 4) % 4));
    check_sinks<double>(c, sinks_of(2), 1e-11);
  }
}

TEST(AttentionSinks, OfAnySize) {
  const AttentionCase c = whole("far apart", shape_of(1, 3, 1, 16), 90);
  check_sinks<double>(c, {-700, 0, 700}, 1e-11);  // no weight, some, all of it
  check_sinks<float>(c, {-90, 0, 90}, 5e-6);
}

TEST(AttentionSinks, RowsWithoutKeysStayZero) {
  const AttentionCase before{"before", shape_of(2, 2, 1, 16), {{0, 1, 130}}, {{{100, 1, 90}}}};
  check_sinks<double>(before, sinks_of(2), 1e-11);
  check_sinks<double>({"none at all", shape_of(1, 2, 2, 16), {{0, 1, 70}}, {{{70, 1, 70}}}}, sinks_of(2), 1e-11);
  check_sinks<double>({"no queries", shape_of(1, 2, 2, 16), {}, {{{70, 1, 70}}}}, sinks_of(2), 1e-11);
  CpuStream stream;
  Problem<double> run = make_inputs<double>(before);
  compute(run, before, 1);
  std::vector<double> sinks = sinks_of(2);
  std::vector<double> l = sums_of(run.lse);
  const TensorView out = host_view(run.out.data(), {2, 130, 2, 16}), lse = host_view(run.lse.data(), {2, 2, 130});
  attention_sinks_finalize(stream, {out, lse, host_view(l.data(), {2, 2, 130})}, out, lse, view_of(sinks));
  for (std::int64_t t = 0; t < 100; ++t) {
    EXPECT_EQ(run.lse[static_cast<std::size_t>(t)], sinks[0]);
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(run.out[static_cast<std::size_t>(t) * 32 + i], 0);
  }
}

TEST(AttentionSinks, TheSameBitsWhateverTheNumberOfThreads) {
  const std::vector<double> out = normals<double>(3 * 400 * 4 * 8, 1), lse = normals<double>(3 * 4 * 400, 2),
                            sinks = sinks_of(4);
  std::vector<double> first;
  for (const int workers : {1, 2, 3, 5}) {
    ThreadPool pool(workers);
    Stream stream(pool);
    std::vector<double> o = out, l = lse, s = sinks, gradient(4, 0.0);
    const TensorView out_view = host_view(o.data(), {3, 400, 4, 8}), lse_view = host_view(l.data(), {3, 4, 400});
    std::vector<double> sums = sums_of(l);
    attention_sinks_finalize(stream, {out_view, lse_view, host_view(sums.data(), {3, 4, 400})}, out_view, lse_view,
                             view_of(s));
    attention_sinks_backward(stream, view_of(gradient), host_view(l.data(), {3, 4, 400}),
                             host_view(o.data(), {3, 4, 400}), view_of(s));
    o.insert(o.end(), l.begin(), l.end());
    o.insert(o.end(), gradient.begin(), gradient.end());
    if (first.empty()) first = o;
    EXPECT_EQ(o, first);
  }
}

}  // namespace
}  // namespace ringtrain
