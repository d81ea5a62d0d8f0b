// The ring's schedule without data: the plans of all ranks for random need matrices are simulated together, round by
// round, with sets of (rank, owner) pairs instead of numbers; and the plans of the usual masks are spelled out.
#include "parallel/ring/ring_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "tests/support/shards.h"

namespace ringtrain {
namespace {

using Needs = std::vector<char>;

std::vector<RingPlan> all_plans(const Needs& needed, int N) {
  std::vector<RingPlan> plans;
  for (int rank = 0; rank < N; ++rank) plans.push_back(ring_plan(needed, N, rank));
  return plans;
}

/// One message: its sender, its kind, its receiver, and its content.
struct Message {
  int from, to;
  int owner;
  std::multiset<int> contributions;  // gradients: ranks whose share is in it
};

/// Simulates all plans; each check of the contract is an expectation.
class Play {
 public:
  Play(const Needs& needed, int N) : needed_(needed), N_(N), plans_(all_plans(needed, N)) {}

  void run() {
    blocks_met_.assign(N_ * static_cast<std::size_t>(N_), 0);
    returned_.assign(N_, {});
    carried_.assign(N_, {});
    for (int rank = 0; rank < N_; ++rank) {
      const RingPlan& plan = plan_of(rank);
      ASSERT_EQ(plan.size(), N_ + 1U);
      ASSERT_TRUE(plan.front().step);
      EXPECT_EQ(plan.front().step->owner, rank);
      for (int hop = 0; hop < N_; ++hop) EXPECT_EQ(plan[hop].step.value_or(RingStep{.hop = hop}).hop, hop);
    }
    for (int hop = 0; hop < N_; ++hop) {
      compute(hop);
      keys_for(hop + 1);
      gradients_of(hop);
    }
    for (int rank = 0; rank < N_; ++rank) {
      for (int owner = 0; owner < N_; ++owner) {
        EXPECT_EQ(blocks_met_[index(rank, owner)], needed_[index(rank, owner)] ? 1 : 0) << rank << " meets " << owner;
      }
    }
    for (int owner = 0; owner < N_; ++owner) {
      std::multiset<int> expected;
      for (int rank = 0; rank < N_; ++rank) {
        if (needed_[index(rank, owner)]) expected.insert(rank);
      }
      EXPECT_EQ(returned_[owner], expected) << "gradients of block " << owner;
    }
  }

 private:
  std::size_t index(int i, int j) const {
    return static_cast<std::size_t>(i) * static_cast<std::size_t>(N_) + static_cast<std::size_t>(j);
  }
  const RingPlan& plan_of(int rank) const { return plans_[rank]; }

  void compute(int hop) {
    for (int rank = 0; rank < N_; ++rank) {
      const auto& step = plan_of(rank)[hop].step;
      if (!step) continue;
      EXPECT_EQ(step->owner, (rank - hop + N_) % N_);
      EXPECT_TRUE(hop == 0 || holds_.count({rank, step->owner})) << "rank " << rank << " hop " << hop;
      ++blocks_met_[index(rank, step->owner)];
      auto& sum = hop == 0 ? returned_[rank] : carried_[rank][step->owner];
      EXPECT_TRUE(hop == 0 || step->gradient_from >= 0 || sum.empty()) << "a run starts from zero";
      sum.insert(rank);
    }
  }

  /// The sends and receives of a round, as listed by each rank, must be the same messages in the same order per pair.
  static void expect_matched(const std::vector<Message>& sent, const std::vector<Message>& received) {
    std::map<std::pair<int, int>, std::vector<int>> sends, receives;
    for (const Message& message : sent) sends[{message.from, message.to}].push_back(message.owner);
    for (const Message& message : received) receives[{message.from, message.to}].push_back(message.owner);
    EXPECT_EQ(sends, receives);
    for (const auto& [pair, owners] : sends) EXPECT_EQ(owners.size(), 1u) << "one message a pair and round";
  }

  void keys_for(int hop) {
    std::vector<Message> sent, received;
    for (int rank = 0; rank < N_; ++rank) {
      const RingHop& here = plan_of(rank)[hop];
      const auto &before = plan_of(rank)[hop - 1].step, &step = here.step;
      if (before && before->forward_to >= 0) {
        EXPECT_GT(before->hop, 0);
        EXPECT_EQ(before->forward_to, (rank + 1) % N_);
        sent.push_back({rank, before->forward_to, before->owner, {}});
      }
      if (here.deliver_to >= 0) sent.push_back({rank, here.deliver_to, rank, {}});
      if (step) {
        ASSERT_GE(step->receive_from, 0);
        received.push_back({step->receive_from, rank, step->owner, {}});
        holds_.insert({rank, step->owner});
      }
    }
    expect_matched(sent, received);
    for (const Message& message : sent) {
      EXPECT_TRUE(message.from != message.to);
      EXPECT_TRUE(needed_[index(message.to, message.owner)]) << "a message that nobody needs";
    }
  }

  void gradients_of(int hop) {
    std::vector<Message> sent, received;
    for (int rank = 0; rank < N_; ++rank) {
      const RingHop& here = plan_of(rank)[hop];
      const auto &step = here.step, &next = plan_of(rank)[hop + 1].step;
      if (step && step->gradient_to >= 0) {
        auto& sum = hop == 0 ? returned_[rank] : carried_[rank][step->owner];
        sent.push_back({rank, step->gradient_to, step->owner, sum});
      }
      if (next && next->gradient_from >= 0) received.push_back({next->gradient_from, rank, next->owner, {}});
      if (here.return_from >= 0) received.push_back({here.return_from, rank, rank, {}});
    }
    expect_matched(sent, received);
    for (const Message& message : sent) {
      if (message.to != message.owner) {
        carried_[message.to][message.owner] = message.contributions;
        continue;
      }
      auto& returned = returned_[message.owner];
      if (plan_of(message.owner)[hop].return_replaces) {
        returned = message.contributions;
      } else {
        returned.insert(message.contributions.begin(), message.contributions.end());
      }
    }
  }

  const Needs& needed_;
  const int N_;
  const std::vector<RingPlan> plans_;
  std::vector<int> blocks_met_;
  std::set<std::pair<int, int>> holds_;
  std::vector<std::multiset<int>> returned_;                // [owner]
  std::vector<std::map<int, std::multiset<int>>> carried_;  // [rank][owner]
};

TEST(RingSchedule, EveryPlanOfASmallRingFits) {
  for (int N = 1; N <= 4; ++N) {  // all 2^(N (N - 1)) matrices
    const int free = N * (N - 1);
    for (int bits = 0; bits < 1 << free; ++bits) {
      Needs needed(static_cast<std::size_t>(N * N), 1);
      for (int at = 0, bit = 0; at < N * N; ++at) {
        if (at / N != at % N) needed[at] = static_cast<char>(bits >> bit++ & 1);
      }
      Play(needed, N).run();
      ASSERT_FALSE(HasFailure()) << "N " << N << ", matrix " << bits;
    }
  }
}

TEST(RingSchedule, RandomPlansFit) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 3000; ++trial) {
    const int N = 5 + static_cast<int>(random() % 12);
    const unsigned density = random() % 101;
    Needs needed(static_cast<std::size_t>(N * N));
    for (int at = 0; at < N * N; ++at) needed[at] = at / N == at % N || random() % 100 < density;
    Play(needed, N).run();
    ASSERT_FALSE(HasFailure()) << "trial " << trial;
  }
}

// --- The usual masks.

std::vector<ShardExtents> shards(Layout layout, std::int64_t S, int N,
                                 const std::vector<std::int32_t>& documents = {}) {
  return testing::shards_of(layout, S, N, 1, documents).extents;
}

/// Returns the owners each rank meets, in order, as text: "0|10|210|3210".
std::string meetings(const Needs& needed, int N) {
  std::string text;
  for (const RingPlan& plan : all_plans(needed, N)) {
    if (!text.empty()) text += '|';
    for (const RingHop& hop : plan) text += hop.step ? std::to_string(hop.step->owner) : "";
  }
  return text;
}

/// Returns the numbers of messages with keys and values, and with gradients (both counted where they are received).
std::pair<int, int> transfers(const Needs& needed, int N) {
  int keys = 0, gradients = 0;
  for (const RingPlan& plan : all_plans(needed, N)) {
    for (const RingHop& hop : plan) {
      keys += hop.step && hop.step->receive_from >= 0;
      gradients += hop.step && hop.step->gradient_from >= 0;
      gradients += hop.return_from >= 0;
    }
  }
  return {keys, gradients};
}

TEST(RingSchedule, CausalContiguousMeetsWhatIsBeforeIt) {
  const auto needed = ring_needs({.causal = true}, shards(Layout::contiguous, 64, 4));
  EXPECT_EQ(meetings(needed, 4), "0|10|210|3210");
  EXPECT_EQ(transfers(needed, 4), std::make_pair(6, 6 + 3));  // N (N - 1) / 2, and a return for each block but the last
  const RingPlan last = ring_plan(needed, 4, 3), first = ring_plan(needed, 4, 0);
  for (int hop = 0; hop < 4; ++hop) {
    EXPECT_EQ(last[hop].deliver_to, -1);
    EXPECT_EQ(last[hop].return_from, -1);
    ASSERT_TRUE(last[hop].step);
    EXPECT_EQ(last[hop].step->gradient_to, hop == 0 ? -1 : 3 - hop);  // every block ends here: directly to the owner
    EXPECT_EQ(first[hop].return_from, hop == 3 ? 3 : -1);
  }
  EXPECT_TRUE(first[3].return_replaces);
}

TEST(RingSchedule, BidirectionalZigzagAndStripedMeetAll) {
  EXPECT_EQ(meetings(ring_needs({.causal = false}, shards(Layout::contiguous, 64, 4)), 4), "0321|1032|2103|3210");
  for (const Layout layout : {Layout::striped, Layout::zigzag}) {
    const auto needed = ring_needs({.causal = true}, shards(layout, 64, 4));
    EXPECT_EQ(meetings(needed, 4), "0321|1032|2103|3210") << name_of(layout);
    EXPECT_EQ(transfers(needed, 4), std::make_pair(12, 12 + 4));
  }
}

TEST(RingSchedule, WindowMeetsItsNeighborsOnly) {
  // Shards of 16: a window of 17 reaches one shard back, 18 two.
  EXPECT_EQ(meetings(ring_needs({.causal = true, .window = 17}, shards(Layout::contiguous, 64, 4)), 4), "0|10|21|32");
  EXPECT_EQ(meetings(ring_needs({.causal = true, .window = 18}, shards(Layout::contiguous, 64, 4)), 4), "0|10|210|321");
  EXPECT_EQ(meetings(ring_needs({.causal = true, .window = 1}, shards(Layout::contiguous, 64, 4)), 4), "0|1|2|3");
  // In both directions: the right neighbor's block comes directly from its owner, at the last hop.
  const auto needed = ring_needs({.causal = false, .window = 17}, shards(Layout::contiguous, 64, 4));
  EXPECT_EQ(meetings(needed, 4), "01|102|213|32");
  const RingPlan plan = ring_plan(needed, 4, 1);
  ASSERT_TRUE(plan[3].step);
  EXPECT_EQ(plan[3].step->owner, 2);
  EXPECT_EQ(plan[3].step->receive_from, 2);
  EXPECT_EQ(plan[3].step->gradient_from, -1);
  EXPECT_EQ(plan[3].step->gradient_to, 2);
  EXPECT_TRUE(plan[1].return_from == 2 && plan[1].return_replaces);
  EXPECT_TRUE(plan[3].return_from == 0 && !plan[3].return_replaces);
}

TEST(RingSchedule, ZigzagWindowSkipsTheMiddle) {
  // Chunks of 8: rank 0 holds chunks 0 and 7, 1: 1 and 6, 2: 2 and 5, 3: 3 and 4. A window of 9 reaches one chunk back.
  const auto needed = ring_needs({.causal = true, .window = 9}, shards(Layout::zigzag, 64, 4));
  EXPECT_EQ(meetings(needed, 4), "01|102|213|32");
}

TEST(RingSchedule, DocumentsEndTheReach) {
  // Documents end with shards 1 and 2: [0, 32), [32, 48), [48, 64).
  std::vector<std::int32_t> documents(64);
  for (std::size_t i = 0; i < 64; ++i) documents[i] = i < 32 ? 0 : i < 48 ? 1 : 2;
  const auto needed = ring_needs({.causal = true}, shards(Layout::contiguous, 64, 4, documents));
  EXPECT_EQ(meetings(needed, 4), "0|10|2|3");
  EXPECT_EQ(transfers(needed, 4), std::make_pair(1, 2));
  // In a second sequence of the micro-batch, one document spans shards 2 and 3.
  auto extents = shards(Layout::contiguous, 64, 4, documents);
  std::fill(documents.begin() + 32, documents.end(), 1);
  const auto second = shards(Layout::contiguous, 64, 4, documents);
  for (std::size_t rank = 0; rank < 4; ++rank) extents[rank].push_back(second[rank][0]);
  EXPECT_EQ(meetings(ring_needs({.causal = true}, extents), 4), "0|10|2|32");
}

TEST(RingSchedule, EmptyShardsMeetNoOther) {
  const auto needed = ring_needs({.causal = false}, shards(Layout::contiguous, 2, 4));  // tokens on ranks 0 and 1
  EXPECT_EQ(meetings(needed, 4), "01|10|2|3");
  EXPECT_EQ(transfers(needed, 4), std::make_pair(2, 3));  // block 1 starts its run at another rank than its owner
}

}  // namespace
}  // namespace ringtrain
