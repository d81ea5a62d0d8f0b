// Compares merging of long lists with the definition, and checks its cost, which is counted and not timed.
#include "data/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ringtrain {
namespace {

/// Merges the lowest rank, the leftmost first, by checking all pairs again for every merge.
std::vector<std::int32_t> merged_by_definition(std::vector<std::int32_t> symbols, const std::vector<Merge>& merges) {
  while (true) {
    std::size_t place = symbols.size();
    const Merge* best = nullptr;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (const Merge& merge : merges) {
        if (merge.left != symbols[i] || merge.right != symbols[i + 1]) continue;
        if (best && best->rank <= merge.rank) continue;
        best = &merge;
        place = i;
      }
    }
    if (!best) return symbols;
    symbols[place] = best->product;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

/// Rules for `letters` first symbols: for earlier pairs, with ranks in any order, some of them shared.
std::vector<Merge> random_merges(std::mt19937& random, std::int32_t letters, std::int32_t count, bool shared_ranks) {
  std::vector<Merge> merges;
  for (std::int32_t i = 0; i < count; ++i) {
    const auto any = [&] { return static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(letters + i)); };
    const auto rank = static_cast<std::uint32_t>(random());
    const Merge merge{any(), any(), letters + i, shared_ranks ? rank % 4 : rank};
    const auto same = [&](const Merge& one) { return one.left == merge.left && one.right == merge.right; };
    if (std::ranges::none_of(merges, same)) merges.push_back(merge);
  }
  // Ranks as in tokenizers: small numbers.
  std::vector<std::uint32_t> ranks;
  for (const Merge& merge : merges) ranks.push_back(merge.rank);
  std::ranges::sort(ranks);
  for (Merge& merge : merges) {
    merge.rank = static_cast<std::uint32_t>(std::ranges::lower_bound(ranks, merge.rank) - ranks.begin());
  }
  return merges;
}

TEST(Merger, LongListsMergeByTheDefinition) {
  std::mt19937 random(17);
  for (int round = 0; round < 300; ++round) {
    const auto letters = static_cast<std::int32_t>(1 + random() % 4);
    const std::vector<Merge> merges = random_merges(random, letters, 12, round % 2 == 1);
    const MergeTable table(merges);
    Merger merger(table);
    for (int list = 0; list < 3; ++list) {  // consecutively with one merger
      std::vector<std::int32_t> symbols(97 + random() % 60);
      for (std::int32_t& symbol : symbols) {
        symbol = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(letters));
      }
      const auto expected = merged_by_definition(symbols, merges);
      merger.merge(symbols);
      ASSERT_EQ(symbols, expected) << "round " << round;
    }
  }
}

TEST(Merger, ARunOfOneLetterCostsAFewLookupsEach) {
  // As in vocabularies: each token has twice as many letters as the previous one, and odd numbers of them come later.
  std::vector<Merge> merges;
  std::int32_t symbol = 0;
  for (std::uint32_t rank = 0; rank < 7; ++rank) {
    merges.push_back({symbol, symbol, symbol + 1, rank});
    ++symbol;
  }
  for (std::int32_t left = 1; left < 7; ++left) {
    merges.push_back({left, 0, ++symbol, static_cast<std::uint32_t>(symbol)});
  }
  const MergeTable table(merges);
  for (const std::size_t letters : {1000, 100'000, 1'000'000}) {
    Merger merger(table);
    std::vector<std::int32_t> run(letters, 0);
    merger.merge(run);
    EXPECT_LE(run.size(), letters / 128 + 7);
    // One lookup for every pair, one for each that is taken out of a bucket, and two for the pairs that a merge
    // creates.
    EXPECT_LE(merger.lookups(), static_cast<std::int64_t>(5 * letters + 100)) << letters;
  }
}

}  // namespace
}  // namespace ringtrain
