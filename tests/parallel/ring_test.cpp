// The ring without attention: its memory as documented and planned, the blocks that a visitor gets, micro-batches of
// changing shape, measured waits, and errors in the middle of a pass.
#include "parallel/ring/ring.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <thread>

#include "parallel/launch/launch.h"
#include "tests/parallel/run_ranks.h"
#include "tests/support/error_of.h"
#include "tests/support/shards.h"
#include "tests/support/wait_until.h"

namespace ringtrain {
namespace {

static_assert(std::is_same_v<decltype(RingBlock::k), ConstTensorView>, "a visitor cannot write the keys it is shown");

TEST(Ring, BuffersFollowTheFormulaAndThePlan) {
  for (const int N : {1, 2, 3, 5}) {
    for (const bool backward : {true, false}) {
      for (const bool documents : {true, false}) {
        for (const std::int64_t tokens : {0, 3, 64}) {
          const RingCapacity capacity{.tokens = 3 * tokens,
                                      .gradient_tokens = 2 * tokens,
                                      .G = 3,
                                      .D = 5,
                                      .dtype = DType::float32,
                                      .backward = backward,
                                      .documents = documents};
          Allocator plan(Device::cpu(), Allocator::Mode::plan);
          const Ring planned(plan, nullptr, N, capacity);
          const auto rounded = [](std::int64_t bytes) {
            return std::max<std::size_t>(64, static_cast<std::size_t>((bytes + 63) / 64 * 64));
          };
          const std::size_t block = rounded(2 * 3 * tokens * 3 * 5 * 4), gradient = rounded(2 * 2 * tokens * 3 * 5 * 4);
          const std::size_t ids = rounded(3 * tokens * 4);
          const std::size_t buffers = N == 1 ? 0 : N == 2 ? 1 : 2, returns = N > 2 ? 1 : 0;
          const std::size_t expected =
              buffers * block + (documents ? buffers * ids : 0) + (backward ? (buffers + returns) * gradient : 0);
          EXPECT_EQ(plan.current()[Tag::ring], expected);
          testing::run_ranks({.ranks = N}, [&](Communicator& world) {
            Allocator real(Device::cpu());
            const Ring ring(real, &world, N, capacity);
            EXPECT_EQ(real.current()[Tag::ring], expected);
            EXPECT_EQ(real.current().total, expected);
          });
        }
      }
    }
  }
}

/// A rank with its own small ring: keys are 1000 * owner + index, values their negatives, documents the owner's rank.
class Rank {
 public:
  Rank(Communicator& world, Layout layout, std::int64_t S, std::int64_t max_batch_tokens, std::int64_t min_part = 0)
      : world_(world),
        pool_(1),
        stream_(pool_),
        allocator_(Device::cpu()),
        layout_(layout),
        ring_(allocator_, &world, world.size(),
              {.tokens = 2 * max_batch_tokens,
               .gradient_tokens = 2 * max_batch_tokens,
               .G = 1,
               .D = 2,
               .min_part = min_part}) {
    begin(S, 1, {.causal = true});
  }

  void begin(std::int64_t S, std::int64_t B, const AttentionMask& mask) {
    B_ = B;
    const testing::Shards shards = testing::shards_of(layout_, S, world_.size(), B);
    segments_ = shards.segments;
    kv_ = block_of(world_.rank());
    dkv_.assign(kv_.size(), 99);
    documents_.assign(B * tokens(world_.rank()), world_.rank());
    // Ids are ranks: for contiguous shards, these are documents.
    DocumentStarts starts;
    for (const SegmentList& own : segments_) {
      if (!own.empty()) starts.push_back(own.front().start);
    }
    const std::vector<DocumentStarts> documents(B, starts);
    ring_.begin(mask, shards.extents, segments_, B,
                layout_ == Layout::contiguous ? std::span(documents) : std::span<const DocumentStarts>());
  }

  std::int64_t tokens(int rank) const { return token_count(segments_[rank]); }
  std::vector<float> block_of(int rank) const {
    const auto half = static_cast<std::size_t>(B_ * tokens(rank) * 2);
    std::vector<float> kv(2 * half);
    for (std::size_t i = 0; i < half; ++i) {
      kv[i] = 1000.0F * static_cast<float>(rank) + static_cast<float>(i);
      kv[half + i] = -kv[i];
    }
    return kv;
  }
  Shape shape() const { return {2, B_, tokens(world_.rank()), 1, 2}; }
  void forward(const RingVisitor& visitor) {
    ring_.forward(stream_, 7, host_view(kv_.data(), shape()), documents(), visitor);
  }
  void backward(const RingVisitor& visitor, const std::function<void()>& overlap = {}) {
    ring_.backward(stream_, 7, host_view(kv_.data(), shape()), documents(), host_view(dkv_.data(), shape()), visitor,
                   overlap);
  }
  /// Checks that a block, or a part of one, is its owner's in every element.
  void check(const RingBlock& block, bool backward) const {
    const std::int64_t T = tokens(block.owner), n = token_count(block.tokens.segments);
    const Shape expected{block.sequences, n, 1, 2};
    EXPECT_EQ(block.k.shape, expected);
    EXPECT_EQ(block.v.shape, expected);
    EXPECT_TRUE(backward || (block.sequences == B_ && n == T));
    const SegmentList& own = segments_[block.owner];
    std::int64_t first = 0;  // where these tokens begin in the shard
    if (n > 0) {
      while (position_of(own, first) != position_of(block.tokens.segments, 0)) ++first;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(position_of(block.tokens.segments, i), position_of(own, first + i));
    }
    const std::vector<float> kv = block_of(block.owner);
    const auto at = static_cast<std::ptrdiff_t>((block.first_sequence * T + first) * 2), half = std::ssize(kv) / 2;
    EXPECT_TRUE(std::equal(block.k.as<float>(), block.k.as<float>() + expected.numel(), kv.begin() + at));
    EXPECT_TRUE(std::equal(block.v.as<float>(), block.v.as<float>() + expected.numel(), kv.begin() + half + at));
    EXPECT_EQ(block.tokens.documents.shape, (Shape{block.sequences, n}));
    for (std::int64_t i = 0; i < block.sequences * n; ++i) {
      EXPECT_EQ(block.tokens.documents.as<std::int32_t>()[i], block.owner);
    }
    EXPECT_EQ(block.dk.empty(), !backward);
  }
  /// Adds 2^rank to every element of dk, and twice that to dv: the sums show which ranks contributed, and how often.
  void contribute(const RingBlock& block) const {
    const auto share = static_cast<float>(1 << world_.rank());
    for (std::int64_t i = 0; i < block.dk.numel(); ++i) {
      block.dk.as<float>()[i] = share + (block.accumulate ? block.dk.as<float>()[i] : 0);
      block.dv.as<float>()[i] = 2 * share + (block.accumulate ? block.dv.as<float>()[i] : 0);
    }
  }
  const std::vector<float>& dkv() const { return dkv_; }
  const std::vector<float>& kv() const { return kv_; }
  Ring& ring() { return ring_; }

 private:
  TensorView documents() { return host_view(documents_.data(), {B_, tokens(world_.rank())}); }

  Communicator& world_;
  ThreadPool pool_;
  Stream stream_;
  Allocator allocator_;
  Layout layout_;
  std::int64_t B_ = 1;
  std::vector<SegmentList> segments_;
  std::vector<float> kv_, dkv_;
  std::vector<std::int32_t> documents_;
  Ring ring_;
};

struct PassCase {
  std::int64_t S, B;
  AttentionMask mask;
};

/// Returns the sum of 2^rank over the ranks that may see one of this rank's keys, derived only from the mask's
/// definition.
float shares_of_who_sees(const PassCase& c, Layout layout, int rank, int ranks) {
  float sum = 0;
  const SegmentList keys = shard_segments(layout, c.S, ranks, rank);
  for (int other = 0; other < ranks; ++other) {
    bool sees = other == rank;
    const SegmentList queries = shard_segments(layout, c.S, ranks, other);
    for (std::int64_t i = 0; i < token_count(queries); ++i) {
      for (std::int64_t j = 0; j < token_count(keys); ++j) {
        const std::int64_t ahead = position_of(keys, j) - position_of(queries, i);
        sees |= !(c.mask.causal && ahead > 0) && (c.mask.window == 0 || std::abs(ahead) < c.mask.window);
      }
    }
    if (sees) sum += static_cast<float>(1 << other);
  }
  return sum;
}

/// Runs forward and backward, and expects exactly the blocks of the plan, each complete.
void expect_the_planned_blocks(Rank& rank, const PassCase& c) {
  std::vector<int> forward, backward, planned;
  std::int64_t tokens = 0, planned_tokens = 0, tokens_before = -1;
  const auto own_kv = rank.kv();
  rank.forward([&](const RingBlock& block) {
    rank.check(block, false);
    forward.push_back(block.owner);
  });
  rank.backward(
      [&](const RingBlock& block) {
        rank.check(block, true);
        rank.contribute(block);
        if (backward.empty() || backward.back() != block.owner) backward.push_back(block.owner);
        tokens += block.dk.numel() / 2;
      },
      [&] { tokens_before = tokens; });
  EXPECT_EQ(tokens_before, tokens);  // it came once, after all blocks
  EXPECT_EQ(rank.kv(), own_kv);
  for (const RingHop& hop : rank.ring().plan()) {
    if (!hop.step) continue;
    planned.push_back(hop.step->owner);
    planned_tokens += c.B * rank.tokens(hop.step->owner);
  }
  EXPECT_EQ(tokens, planned_tokens);
  EXPECT_EQ(forward, planned);
  EXPECT_EQ(backward, planned);
}

TEST(Ring, ShowsEveryBlockOnceAndBringsEverySumHome) {
  for (const auto& [layout, least] : {std::pair{Layout::contiguous, 0},
                                      {Layout::contiguous, 1},
                                      {Layout::zigzag, 0},
                                      {Layout::zigzag, 3},
                                      {Layout::striped, 1}}) {
    testing::run_ranks({.ranks = 5}, [&, layout = layout, least = least](Communicator& world) {
      Rank rank(world, layout, 37, 8, least);
      for (const PassCase& c : {PassCase{37, 1, {true, 0}}, PassCase{37, 2, {false, 0}}, PassCase{3, 1, {true, 0}},
                                PassCase{0, 1, {true, 0}}, PassCase{40, 2, {true, 9}}, PassCase{40, 1, {false, 9}},
                                PassCase{23, 2, {true, 0}}}) {
        rank.begin(c.S, c.B, c.mask);
        expect_the_planned_blocks(rank, c);
        const float expected = shares_of_who_sees(c, layout, world.rank(), 5);
        const auto half = static_cast<std::ptrdiff_t>(rank.dkv().size() / 2);
        for (std::ptrdiff_t i = 0; i < half; ++i) {
          ASSERT_EQ(rank.dkv()[i], expected) << "S " << c.S << ", rank " << world.rank();
          ASSERT_EQ(rank.dkv()[half + i], 2 * expected);
        }
      }
    });
  }
}

TEST(Ring, MeasuresExposedWaiting) {
  testing::run_ranks({.ranks = 2}, [](Communicator& world) {
    Rank rank(world, Layout::contiguous, 16, 8);
    world.barrier({"both begin"});
    if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));  // rank 1 waits for this
    rank.forward([](const RingBlock&) {});
    const auto [forward, backward] = rank.ring().take_loads();
    ASSERT_EQ(forward.hop_waits.size(), 3u);  // two hops and the end
    if (world.rank() == 1) {                  // it needs block 0
      EXPECT_GT(forward.hop_waits[1], 0.1);
    }
    EXPECT_LT(forward.wait_seconds(), 20);
    EXPECT_EQ(backward.wait_seconds(), 0);
    EXPECT_EQ(forward.pairs, 36);  // 8 tokens per rank, in a separate document
    EXPECT_EQ(rank.ring().take_loads()[0].wait_seconds(), 0);
    const auto computing = std::chrono::milliseconds(20);
    rank.backward([&](const RingBlock&) { std::this_thread::sleep_for(computing); });
    const RingLoads again = rank.ring().take_loads();
    EXPECT_EQ(again[0].pairs, 0);
    EXPECT_EQ(again[1].pairs, forward.pairs);
    EXPECT_GE(again[1].compute_seconds, world.rank() == 0 ? 0.02 : 0.04);
  });
}

TEST(Ring, TheNextBlockMovesWhileThisOneIsComputed) {
  // Rank 0 computes with its own block, without calling the communicator, until rank 1's visitor has that block: it
  // must already be in transit. Small and large messages move differently among processes, which communicate through a
  // file.
  const std::string shown =
      (std::filesystem::temp_directory_path() / ("ringtrain_shown_" + std::to_string(::getppid()))).string();
  for (const std::int64_t tokens : {16, 1 << 19}) {
    testing::run_ranks({.ranks = 2}, [&](Communicator& world) {
      Rank rank(world, Layout::contiguous, 2 * tokens, tokens);
      if (world.rank() == 0) std::filesystem::remove(shown);
      world.barrier({"nothing is shown"});
      rank.forward([&](const RingBlock& block) {
        if (block.owner != 0) return;
        if (world.rank() == 1) std::ofstream(shown).flush();
        EXPECT_TRUE(world.rank() == 1 || testing::wait_until([&] { return std::filesystem::exists(shown); }));
      });
      if (world.rank() == 0) std::filesystem::remove(shown);
    });
  }
}

TEST(RingFailure, AnErrorInAVisitEndsAllRanks) {
  for (const bool backward : {false, true}) {
    for (int hop = 0; hop < 3; ++hop) {
      const std::string sentence = testing::error_of(ExitCode::numeric, [&] {
        launch_threads({.ranks = 4, .timeout_seconds = 120}, [&](Communicator& world) {
          Rank rank(world, Layout::zigzag, 64, 16);
          const auto visit = [&](const RingBlock& block) {
            if (world.rank() == 2 && block.hop == hop) fail(ExitCode::numeric, "bad number at hop {}", hop);
          };
          backward ? rank.backward(visit) : rank.forward(visit);
          world.barrier({});
        });
      });
      EXPECT_EQ(sentence, fmt::format("bad number at hop {}", hop));
    }
  }
}

TEST(RingFailure, ATimeoutNamesLayerAndHop) {
  const std::string sentence = testing::error_of(ExitCode::rank, [] {
    launch_threads({.ranks = 3, .timeout_seconds = 2}, [&](Communicator& world) {
      Rank rank(world, Layout::zigzag, 64, 22);
      if (world.rank() == 1) return;  // never arrives
      rank.forward([](const RingBlock&) {});
    });
  });
  for (const char* words : {"ring keys and values, layer 7, hop", "rank 1 has not"}) {
    EXPECT_NE(sentence.find(words), std::string::npos) << sentence;
  }
}

}  // namespace
}  // namespace ringtrain
