// The parts of a block: every token once in every layout, none too small, later ones first, cut at the kernels' tile
// edges; and a part of a tensor has those tokens.
#include "parallel/ring/ring_parts.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace ringtrain {
namespace {

using Cuts = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Returns the first token and the number of tokens of each part.
Cuts cuts_of(const std::vector<RingPart>& parts) {
  Cuts cuts;
  for (const RingPart& part : parts) cuts.emplace_back(part.first_token, part.tokens);
  return cuts;
}

TEST(RingParts, AreHalvesOfSegmentsFromTheLastTokensToTheFirst) {
  EXPECT_EQ(cuts_of(ring_parts(SegmentList{{8192, 1, 4096}}, 1, 2048)), (Cuts{{2048, 2048}, {0, 2048}}));
  EXPECT_EQ(cuts_of(ring_parts(SegmentList{{0, 1, 4096}, {12288, 1, 4096}}, 1, 2048)),
            (Cuts{{6144, 2048}, {4096, 2048}, {2048, 2048}, {0, 2048}}));
  // Too small for quarters: cut where the second segment begins.
  EXPECT_EQ(cuts_of(ring_parts(SegmentList{{0, 1, 4096}, {12288, 1, 4096}}, 1, 4096)), (Cuts{{4096, 4096}, {0, 4096}}));
  EXPECT_EQ(cuts_of(ring_parts(SegmentList{{0, 1, 4096}, {12288, 1, 4096}}, 1, 5000)), (Cuts{{0, 8192}}));
  // The remainder at the beginning is too small for a part.
  EXPECT_EQ(cuts_of(ring_parts(SegmentList{{0, 1, 600}, {12288, 1, 4096}}, 1, 2048)), (Cuts{{2648, 2048}, {0, 2648}}));
}

TEST(RingParts, AreCutBetweenTiles) {
  // The middle of 1000 to 2999 is 2000; tiles begin at 1792 and 2048.
  EXPECT_EQ(cuts_of(ring_parts(SegmentList{{1000, 1, 2000}}, 1, 256)), (Cuts{{792, 1208}, {0, 792}}));
  // The 100th of 3, 7, 11, ...; a tile of 256 of every fourth position begins at 1024 n.
  EXPECT_EQ(cuts_of(ring_parts(SegmentList{{3, 4, 1000}}, 1, 256)), (Cuts{{256, 744}, {0, 256}}));
  EXPECT_EQ(cuts_of(ring_parts(SegmentList{{100, 1, 300}}, 1, 256)), (Cuts{{0, 300}}));
}

TEST(RingParts, OfSeveralSequencesAreSequences) {
  const auto parts = ring_parts(SegmentList{{0, 1, 300}}, 7, 600);
  ASSERT_EQ(parts.size(), 3u);  // the seventh sequence by itself is too small
  EXPECT_EQ(parts[0].first_sequence, 5);
  EXPECT_EQ(parts[0].sequences, 2);
  EXPECT_EQ(parts[1].first_sequence, 3);
  EXPECT_EQ(parts[2].first_sequence, 0);
  EXPECT_EQ(parts[2].sequences, 3);
  for (const RingPart& part : parts) EXPECT_EQ(part.tokens, 300);
}

/// All shards are cut at the same positions, whichever of them determines the positions.
void expect_every_token_once(const std::vector<SegmentList>& shards, std::int64_t B, std::int64_t least) {
  for (const SegmentList& from : shards) {
    const auto parts = ring_parts(from, B, least);
    ASSERT_FALSE(parts.empty());
    for (const RingPart& part : parts) EXPECT_TRUE(parts.size() == 1 || part.sequences * part.tokens >= least);
    for (const SegmentList& shard : shards) {
      const std::int64_t T = token_count(shard);
      if (T > token_count(from)) continue;
      std::int64_t end = B == 1 ? T : B;  // of tokens, or of sequences
      for (const RingPart& of_largest : parts) {
        const RingPart part = common_part(of_largest, {.tokens = T});
        EXPECT_EQ(B == 1 ? part.first_token + part.tokens : part.first_sequence + part.sequences, end);
        EXPECT_EQ(B == 1 ? part.sequences : part.tokens, B == 1 ? 1 : T);
        end = B == 1 ? part.first_token : part.first_sequence;
      }
      EXPECT_EQ(end, 0);
    }
  }
}

TEST(RingParts, HoldEveryTokenOnce) {
  for (const Layout layout : all_layouts) {
    for (const std::int64_t S : {0, 1, 2, 7, 100, 1031, 4096}) {
      std::vector<SegmentList> shards;
      for (int rank = 0; rank < 3; ++rank) shards.push_back(shard_segments(layout, S, 3, rank));
      for (const std::int64_t least : {1, 3, 50, 256, 700}) {
        for (const std::int64_t B : {0, 1, 2, 5}) expect_every_token_once(shards, B, least);
      }
    }
  }
}

TEST(RingParts, OfATensorAreThoseTokens) {
  std::vector<float> values(2 * 10 * 3);
  std::iota(values.begin(), values.end(), 0.0F);
  const SegmentList segments{{0, 1, 10}};
  const TensorView one = host_view(values.data(), {1, 10, 3}), two = host_view(values.data(), {2, 10, 3});
  const auto tokens = ring_parts(segments, 1, 5), sequences = ring_parts(segments, 2, 10);
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(part_of(one, tokens[0]).shape, (Shape{1, 5, 3}));
  EXPECT_EQ(*part_of(one, tokens[0]).as<float>(), 15);
  EXPECT_EQ(*part_of(one, tokens[1]).as<float>(), 0);
  ASSERT_EQ(sequences.size(), 2u);
  EXPECT_EQ(part_of(two, sequences[0]).shape, (Shape{1, 10, 3}));
  EXPECT_EQ(*part_of(two, sequences[0]).as<float>(), 30);
  EXPECT_TRUE(part_of({}, tokens[0]).empty());
  EXPECT_EQ(part_of(two, ring_parts(segments, 2, 100)[0]).shape, two.shape);
}

}  // namespace
}  // namespace ringtrain
