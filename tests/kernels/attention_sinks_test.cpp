// Attention sinks: rows finished with sinks, and the gradients of backward, equal the reference in double, for blocks
// that come one after the other, and for rows without a key.
#include "tests/kernels/attention_case.h"

namespace ringtrain {
namespace {

std::vector<double> sinks_of(std::int64_t H) {
  std::vector<double> sinks;
  for (std::int64_t h = 0; h < H; ++h) sinks.push_back(1.5 * static_cast<double>(h) - 2);
  return sinks;
}

AttentionCase with_sinks(AttentionCase c, const std::vector<double>& sinks) {
  c.sinks = sinks;
  return c;
}

TEST(AttentionSinks, AgreeWithTheReference) {
  for (const double softcap : {0.0, 2.0}) {
    for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{false, 0}, AttentionMask{true, 30}}) {
      for (const std::int64_t documents : {0, 40}) {
        AttentionCase c = whole("softcap " + std::to_string(softcap), shape_of(2, 4, 2, 20, mask.causal, mask.window),
                                211, documents);
        c.shape.softcap = softcap;
        check<double>(with_sinks(c, sinks_of(4)), 1e-11);
        check<float>(with_sinks(c, sinks_of(4)), 5e-6);
      }
    }
  }
}

TEST(AttentionSinks, OfBlocksOnARing) {
  for (const Layout layout : all_layouts) {
    AttentionCase c{name_of(layout), shape_of(1, 2, 1, 16), {}, {}, 30, sinks_of(2)};
    c.queries = shard_segments(layout, 203, 4, 2);
    for (int hop = 0; hop < 4; ++hop) c.blocks.push_back(shard_segments(layout, 203, 4, (2 - hop + 4) % 4));
    check<double>(c, 1e-11);
  }
}

TEST(AttentionSinks, OfAnySize) {
  const AttentionCase c = whole("far apart", shape_of(1, 3, 1, 16), 90);
  check<double>(with_sinks(c, {-700, 0, 700}), 1e-11);  // no weight, some, all of it
  check<float>(with_sinks(c, {-90, 0, 90}), 5e-6);
}

TEST(AttentionSinks, RowsWithoutKeysStayZero) {
  const AttentionCase before{"before", shape_of(2, 2, 1, 16), {{0, 1, 130}}, {{{100, 1, 90}}}, 0, sinks_of(2)};
  check<double>(before, 1e-11);
  check<double>({"none at all", shape_of(1, 2, 2, 16), {{0, 1, 70}}, {{{70, 1, 70}}}, 0, sinks_of(2)}, 1e-11);
  check<double>({"no queries", shape_of(1, 2, 2, 16), {}, {{{70, 1, 70}}}, 0, sinks_of(2)}, 1e-11);
  Problem<double> run = make_inputs<double>(before);
  compute(run, before, 1);
  for (std::int64_t t = 0; t < 100; ++t) {
    EXPECT_EQ(run.lse[static_cast<std::size_t>(t)], before.sinks[0]);
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(run.out[static_cast<std::size_t>(t) * 32 + i], 0);
  }
}

TEST(AttentionSinks, TheSameBitsForAnyNumberOfThreads) {
  const AttentionCase c = with_sinks(whole("threads", shape_of(3, 4, 4, 8), 400), sinks_of(4));
  Problem<double> one = make_inputs<double>(c);
  compute(one, c, 1);
  for (const int workers : {2, 3, 5}) {
    Problem<double> many = make_inputs<double>(c);
    compute(many, c, workers);
    EXPECT_TRUE(many.out == one.out && many.lse == one.lse && many.dsinks == one.dsinks) << workers;
  }
}

}  // namespace
}  // namespace ringtrain
