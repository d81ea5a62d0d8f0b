// The ring's communication in layers with a window: which blocks ranks meet, and the messages and bytes of each layer,
// counted as they pass, also at 64K tokens with a window of 1K. And the memory of such a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "parallel/forwarding_communicator.h"
#include "parallel/ring/ring_schedule.h"
#include "tests/layers/harness.h"

namespace ringtrain::testing {
namespace {

/// Returns how many blocks of other ranks each rank meets in a pass.
std::vector<int> blocks_met(const AttentionMask& mask, Layout layout, std::int64_t S, int ranks) {
  const std::vector<char> needed = ring_needs(mask, shards_of(layout, S, ranks).extents);
  std::vector<int> met;
  for (int rank = 0; rank < ranks; ++rank) {
    met.push_back(static_cast<int>(std::count(&needed[rank * ranks], &needed[rank * ranks] + ranks, 1)) - 1);
  }
  return met;
}

TEST(RingOfAWindow, MeetsTheBlocksThatItSees) {
  constexpr std::int64_t S = 65536, window = 1024;
  for (const int ranks : {8, 16}) {
    for (const Layout layout : {Layout::contiguous, Layout::zigzag}) {
      const std::vector<int> full = blocks_met({true, 0}, layout, S, ranks);
      const std::vector<int> sliding = blocks_met({true, window}, layout, S, ranks);
      double all = 0, few = 0;
      for (std::size_t rank = 0; rank < full.size(); ++rank) {
        EXPECT_LE(sliding[rank], layout == Layout::contiguous ? 1 : 2);
        all += full[rank];
        few += sliding[rank];
      }
      const double share = (5 * few + all) / (6 * all);  // five layers of six have the window
      RecordProperty(std::string(name_of(layout)) + "_" + std::to_string(ranks), std::to_string(share));
      EXPECT_LE(share, ranks == 8 ? 0.38 : 0.28) << name_of(layout);
    }
    for (const int met : blocks_met({true, window}, Layout::striped, S, ranks)) EXPECT_EQ(met, ranks - 1);
  }
}

/// Messages and bytes that ranks send for a purpose, by (operation, layer); and the hops for which a rank receives keys
/// and values, by (rank, layer).
struct Traffic {
  std::mutex mutex;
  std::map<std::pair<std::string, std::int64_t>, std::pair<std::int64_t, std::int64_t>> sent;
  std::map<std::pair<int, std::int64_t>, std::set<int>> hops;
};

class CountingCommunicator : public ForwardingCommunicator {
 public:
  CountingCommunicator(std::shared_ptr<Communicator> inner, Traffic& traffic)
      : ForwardingCommunicator(std::move(inner)), traffic_(traffic) {}
  Request exchange(const ConstTensorView& send, int to, const TensorView& receive, int from, const CallSite& site,
                   const CallerLine& line) override {
    const std::lock_guard lock(traffic_.mutex);
    if (from != no_peer && std::string(site.operation) == "ring keys and values") {
      traffic_.hops[{rank(), site.layer}].insert(site.hop);
    }
    if (to != no_peer) {
      auto& [messages, bytes] = traffic_.sent[{std::string(site.operation), site.layer}];
      ++messages;
      bytes += static_cast<std::int64_t>(send.bytes());
    }
    return inner().exchange(send, to, receive, from, site, line);
  }
  std::unique_ptr<Communicator> split(int color) override {
    return std::make_unique<CountingCommunicator>(inner().split(color), traffic_);
  }

 private:
  Traffic& traffic_;
};

auto counted(Traffic& traffic) {
  return [&traffic](Communicator& world) { return std::make_unique<CountingCommunicator>(borrowed(world), traffic); };
}

TEST(RingOfAWindow, LayersSendWhatTheirMaskNeeds) {
  ModelConfig config = small_llama();
  config.num_hidden_layers = 6;
  config.sliding_window = 4;
  config.layer_types = {5, LayerType::sliding_attention};
  config.layer_types.push_back(LayerType::full_attention);
  for (const auto& [layout, ranks] :
       {std::pair{Layout::contiguous, 8}, {Layout::contiguous, 16}, {Layout::zigzag, 8}, {Layout::zigzag, 16}}) {
    const std::string name = fmt::format("{}_{}", name_of(layout), ranks);
    SCOPED_TRACE(name);
    const Sequences sequences = random_sequences(config, 1, 256, /*documents=*/false, 8);  // 4 of 256: like 1K of 64K
    Traffic traffic;
    run_training(config, {.ranks = ranks, .layout = layout, .around = counted(traffic)}, sequences,
                 sequences.denominator());
    const auto of = [&](std::int64_t layer) { return traffic.sent.at({"ring keys and values", layer}); };
    const auto [full_messages, full_bytes] = of(5);
    std::int64_t bytes = full_bytes;
    for (std::int64_t layer = 0; layer < 5; ++layer) {
      const auto [messages, of_layer] = of(layer);
      // Forward and backward; keys are separate from values if only a part of a block is sent.
      EXPECT_LE(messages, 2 * 2 * ranks * (layout == Layout::contiguous ? 1 : 2));
      EXPECT_LE(static_cast<double>(of_layer * full_messages),
                static_cast<double>(messages * full_bytes) / 2 * (3.5 * ranks / 256));  // three rows of a block
      bytes += of_layer;
    }
    std::int64_t gradients = 0;
    for (std::int64_t layer = 0; layer < 5; ++layer) gradients += traffic.sent.at({"ring gradients", layer}).second;
    const std::int64_t full_gradients = traffic.sent.at({"ring gradients", 5}).second;
    const auto share = [](std::int64_t sent, std::int64_t full) {
      return static_cast<double>(sent + full) / (6 * static_cast<double>(full));
    };
    const double keys_and_values = share(bytes - full_bytes, full_bytes),
                 of_gradients = share(gradients, full_gradients);
    EXPECT_LE(keys_and_values, 0.25);
    EXPECT_LE(of_gradients, 0.25);
    RecordProperty(name + "_share", std::to_string(keys_and_values));
    RecordProperty(name + "_gradient_share", std::to_string(of_gradients));
  }
}

/// A window of 1K at 64K tokens; only the model is scaled down.
class WindowAtLength : public ::testing::Test {
 protected:
  static constexpr std::int64_t S = 65536, window = 1024;

  static ModelConfig model() {
    ModelConfig config = small_llama();
    config.vocab_size = 11;
    config.hidden_size = 8;
    config.intermediate_size = 8;
    config.num_hidden_layers = 1;
    config.num_attention_heads = config.num_key_value_heads = 1;
    config.head_dim = 4;
    config.sliding_window = window;
    return config;
  }

  struct Run : RunResult {
    // Bytes of the rank with the most: of activations and the ring's buffers, and of everything else.
    std::size_t grows = 0, rest = 0;
    Traffic traffic;
  };
  static void train(Run& run, Layout layout, int ranks, std::int64_t tokens) {
    const Sequences sequences = random_sequences(model(), 1, tokens, /*documents=*/false, 8);
    const RunOptions options{
        .ranks = ranks, .layout = layout, .feedforward_chunk = 512, .loss_chunk = 512, .around = counted(run.traffic)};
    static_cast<RunResult&>(run) =
        run_training(model(), options, sequences, sequences.denominator(), [&](const RankModel& rank) {
          const MemoryUse& peak = rank.allocator.peak();
          const std::size_t grows = peak[Tag::activations] + peak[Tag::ring];
          run.grows = std::max(run.grows, grows);
          run.rest = std::max(run.rest, peak.total - grows);
        });
  }
};

TEST_F(WindowAtLength, TwoHopsAtMostAndOnlyRowsThatAreSeen) {
  constexpr int ranks = 8;
  Run single;
  train(single, Layout::contiguous, 1, S);
  EXPECT_TRUE(single.traffic.hops.empty());
  const std::int64_t row = 2 * model().head_dim * static_cast<std::int64_t>(sizeof(double));  // of keys and values
  for (const Layout layout : all_layouts) {
    SCOPED_TRACE(name_of(layout));
    Run run;
    train(run, layout, ranks, S);
    EXPECT_NEAR(run.loss_sum, single.loss_sum, 1e-12 * std::abs(single.loss_sum));
    EXPECT_LE(relative_difference(run.gradients, single.gradients), 1e-11);
    const auto [messages, bytes] = run.traffic.sent.at({"ring keys and values", 0});
    const auto [gradient_messages, gradient_bytes] = run.traffic.sent.at({"ring gradients", 0});
    RecordProperty(std::string(name_of(layout)) + "_messages", std::to_string(messages));
    RecordProperty(std::string(name_of(layout)) + "_bytes", std::to_string(bytes));
    const auto hops_of = [&](int rank) {
      const auto found = run.traffic.hops.find({rank, 0});
      return found == run.traffic.hops.end() ? 0 : std::ssize(found->second);
    };
    if (layout == Layout::striped) {  // every rank has keys in every window; only the last token's own rank sees it
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(hops_of(rank), ranks - 1);
      EXPECT_EQ(bytes, 2 * (ranks - 1) * (S - 1) * row);
      continue;
    }
    // Each boundary between shards is crossed by the keys before it that a window's first query sees.
    const std::int64_t boundaries = layout == Layout::contiguous ? ranks - 1 : 2 * (ranks - 1);
    std::int64_t hops = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_LE(hops_of(rank), layout == Layout::contiguous ? 1 : 2);
      hops += hops_of(rank);
    }
    EXPECT_EQ(hops, boundaries);
    EXPECT_EQ(bytes, 2 * boundaries * (window - 1) * row);           // in both passes
    EXPECT_EQ(messages, 2 * boundaries * 2);                         // keys separate from values
    EXPECT_LE(gradient_bytes, 2 * boundaries * (window - 1) * row);  // to the ranks that see them, and back
    EXPECT_LE(gradient_messages, 2 * boundaries * 2 * 2);            // of one part of a block, or of two
  }
}

TEST_F(WindowAtLength, MemoryIsThatOfARanksTokens) {
  for (const Layout layout : {Layout::contiguous, Layout::zigzag}) {
    SCOPED_TRACE(name_of(layout));
    Run longest, half, as_many;
    train(longest, layout, 8, S);
    train(half, layout, 8, S / 2);
    train(as_many, layout, 4, S / 2);
    EXPECT_EQ(longest.grows, 2 * half.grows);
    EXPECT_EQ(longest.grows, as_many.grows);
    for (const Run* run : {&half, &as_many}) {
      EXPECT_NEAR(static_cast<double>(run->rest), static_cast<double>(longest.rest),
                  0.001 * static_cast<double>(longest.rest));
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
