// Compares attention forward and backward with the plain reference in double: masks, documents, grouped heads, odd
// sizes, shards of every layout, blocks in any order, rows without keys.
#include "tests/kernels/attention_case.h"

namespace ringtrain {
namespace {

TEST(Attention, LengthsAndMasks) {
  for (std::int64_t T : {1, 7, 63, 64, 65, 130, 257}) {
    for (bool causal : {true, false}) {
      for (std::int64_t window : {0, 1, 5, 100}) {
        check_both(
            whole("T " + std::to_string(T) + " causal " + std::to_string(causal) + " window " + std::to_string(window),
                  shape_of(1, 2, 1, 16, causal, window), T));
      }
    }
  }
}

TEST(Attention, HeadSizes) {
  for (std::int64_t D : {1, 8, 20, 33, 64, 80, 128}) {
    check_both(whole("D " + std::to_string(D), shape_of(2, 2, 2, D), 150));
    check_both(whole("full, D " + std::to_string(D), shape_of(1, 2, 1, D, false), 140));
  }
}

TEST(Attention, GroupedHeads) {
  for (std::int64_t group : {1, 2, 4}) {
    for (std::int64_t G : {1, 3}) {
      check_both(whole("group " + std::to_string(group), shape_of(2, G * group, G, 24), 147));
    }
  }
}

TEST(Attention, Documents) {
  for (std::int64_t length : {2, 10, 64, 200}) {
    for (bool causal : {true, false}) {
      for (std::int64_t window : {0, 40}) {
        check_both(whole("documents of " + std::to_string(length), shape_of(2, 2, 1, 16, causal, window), 300, length));
      }
    }
  }
}

/// Every rank's queries with every rank's keys, starting with its own block and then around the ring; and in reverse,
/// because any order must work.
TEST(Attention, ShardsOfEveryLayout) {
  for (Layout layout : all_layouts) {
    for (int ranks : {2, 3, 5}) {
      for (std::int64_t documents : {0, 50}) {
        for (const AttentionMask mask :
             {AttentionMask{true, 0}, AttentionMask{false, 0}, AttentionMask{true, 70}, AttentionMask{false, 70}}) {
          const int rank = static_cast<int>((documents + mask.window + (mask.causal ? 1 : 0)) % ranks);
          AttentionCase c{
              name_of(layout) + std::string(" of ") + std::to_string(ranks), shape_of(2, 2, 1, 16), {}, {}, documents};
          c.shape.mask = mask;
          c.queries = shard_segments(layout, 443, ranks, rank);
          for (int hop = 0; hop < ranks; ++hop) {
            c.blocks.push_back(shard_segments(layout, 443, ranks, (rank - hop + ranks) % ranks));
          }
          check<double>(c, 1e-11);
          std::reverse(c.blocks.begin(), c.blocks.end());
          check<double>(c, 1e-11);
          check<float>(c, 2e-6);
        }
      }
    }
  }
}

TEST(Attention, LargeScores) {
  AttentionCase c = whole("large scores", shape_of(1, 1, 1, 16), 200);
  c.shape.scale = 40;  // probabilities underflow and single keys dominate
  check<double>(c, 1e-11);
  check<float>(c, 2e-4);  // a score of hundreds adds an error of 1e-5 to its exponential
}

TEST(Attention, Softcaps) {
  for (const double softcap : {0.3, 2.0, 50.0}) {  // most scores saturated, curved, nearly linear
    for (const double scale : {0.25, 4.0}) {
      for (const AttentionMask mask : {AttentionMask{true, 0}, AttentionMask{false, 0}, AttentionMask{true, 70}}) {
        for (const std::int64_t D : {16, 33, 64}) {
          AttentionCase c = whole("softcap " + std::to_string(softcap) + " D " + std::to_string(D),
                                  shape_of(2, 2, 1, D, mask.causal, mask.window), 301, mask.window == 0 ? 60 : 0);
          c.shape.scale = scale;
          c.shape.softcap = softcap;
          check<double>(c, 1e-11);
          check<float>(c, 2e-5);  // a score of tens adds an error of 1e-6 to its exponential
        }
      }
    }
  }
  AttentionCase hops{"hops", shape_of(1, 2, 1, 24), {{0, 2, 150}}, {{{0, 2, 150}}, {{1, 2, 150}}}, 40};
  hops.shape.softcap = 1.5;
  check<double>(hops, 1e-11);
  AttentionCase before{"before", shape_of(2, 2, 1, 16), {{0, 1, 230}}, {{{100, 1, 200}}, {{400, 1, 10}}}};
  before.shape.softcap = 1.5;
  check<double>(before, 1e-11);
}

TEST(Attention, SoftcapOfNothingIsRefused) {
  AttentionCase c = whole("no softcap", shape_of(1, 1, 1, 8), 5);
  for (const double softcap : {-1.0, std::nan(""), infinity}) {
    c.shape.softcap = softcap;
    EXPECT_THROW(check<double>(c, 1e-11), Error);
  }
}

TEST(Attention, AwkwardShards) {
  for (const AttentionCase& c : awkward_cases(16)) check_both(c);
}

TEST(Attention, RowsWithoutKeys) {
  const AttentionCase before{"before", shape_of(2, 2, 1, 16), {{0, 1, 230}}, {{{100, 1, 200}}, {{400, 1, 10}}}};
  Problem<float> run = make_inputs<float>(before);
  compute(run, before, 2);
  for (std::int64_t t = 0; t < 100; ++t) EXPECT_EQ(run.lse[t], -infinity);
  EXPECT_TRUE(std::all_of(run.out.begin(), run.out.begin() + 100 * 2 * 16, [](float x) { return x == 0; }));
  EXPECT_TRUE(std::all_of(run.dq.begin(), run.dq.begin() + 100 * 2 * 16, [](float x) { return x == 0; }));
}

}  // namespace
}  // namespace ringtrain
