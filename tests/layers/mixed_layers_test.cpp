// Models whose layers differ: held against the plain double reference on every ring, layout and length; how many hops,
// messages and bytes a layer with a window takes; and the cache of generation, which keeps no more than the window.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "layers/key_value_cache.h"
#include "layers/model_parameters.h"
#include "parallel/forwarding_communicator.h"
#include "parallel/ring/ring_schedule.h"
#include "reference/model.h"
#include "tests/layers/harness.h"
#include "tests/layers/reference_pass.h"

namespace ringtrain::testing {
namespace {

/// A model with all that layers may differ in: windows, none; two bases, a scaling; no rotation; and what attention of
/// some architectures has besides, softcaps and sinks.
ModelConfig mixed_model(Architecture architecture) {
  ModelConfig config = small_model(architecture);
  config.num_hidden_layers = 4;
  config.sliding_window = 6;
  config.layer_types = {LayerType::sliding_attention, LayerType::full_attention, LayerType::sliding_attention};
  config.layer_positions = {LayerPositions::rope, LayerPositions::rope, LayerPositions::none, LayerPositions::rope};
  config.sliding_rope_theta = 30;
  config.rope_scaling.type = RopeType::linear;
  config.rope_scaling.factor = 3;
  config.attention_sinks = architecture != Architecture::llama && architecture != Architecture::olmo3;
  if (architecture == Architecture::qwen3) config.attention_softcap = 2.5;
  return config;
}

class MixedLayers : public ::testing::TestWithParam<Architecture> {};

TEST_P(MixedLayers, EqualTheReferenceOnEveryRing) {
  const ModelConfig config = mixed_model(GetParam());
  const ParameterTable table = make_parameter_table(config);
  for (const bool documents : {false, true}) {
    for (const std::int64_t S : {1, 23, 37}) {
      const Sequences sequences = random_sequences(config, S == 23 ? 1 : 2, S, documents, 5);
      const double denominator = std::max(1.0, sequences.denominator());
      const ReferencePass pass = reference_pass({model_spec(config), test_weights(table)}, sequences, denominator);
      for (const int ranks : {1, 2, 3, 4, 5}) {
        for (const Layout layout : all_layouts) {
          SCOPED_TRACE(std::string(name_of(layout)) + " on " + std::to_string(ranks) + ", " + std::to_string(S) +
                       (documents ? " tokens of documents" : " tokens"));
          const Recompute recompute = all_recompute_policies[static_cast<std::size_t>(ranks + S) % 3];
          const RunResult run =
              run_training(config, {.ranks = ranks, .layout = layout, .recompute = recompute}, sequences, denominator);
          EXPECT_NEAR(run.loss_sum, pass.loss_sum, 1e-12 * std::abs(pass.loss_sum));
          for (const Parameter& parameter : table.all()) {
            const auto begin = run.gradients.begin() + parameter.offset;
            ASSERT_EQ(std::ssize(pass.gradients.at(parameter.name)), parameter.shape.numel());
            EXPECT_LE(relative_difference({begin, begin + parameter.shape.numel()}, pass.gradients.at(parameter.name)),
                      1e-11)
                << parameter.name;
          }
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Models, MixedLayers,
                         ::testing::Values(Architecture::llama, Architecture::qwen3, Architecture::olmo3,
                                           Architecture::gemma2, Architecture::gemma3_text, Architecture::granite),
                         [](const auto& test) { return std::string(name_of(test.param)); });

/// Returns how many blocks of others each rank meets in a pass.
std::vector<int> blocks_met(const AttentionMask& mask, Layout layout, std::int64_t S, int ranks) {
  std::vector<ShardExtents> extents;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<SegmentExtent> sequence;
    for (const Segment& segment : shard_segments(layout, S, ranks, rank)) {
      sequence.push_back({segment.start, segment.last(), 0, 0});
    }
    extents.push_back({sequence});
  }
  const std::vector<char> needed = ring_needs(mask, extents);
  std::vector<int> met;
  for (int rank = 0; rank < ranks; ++rank) {
    met.push_back(static_cast<int>(ring_plan(needed, ranks, rank).steps.size()) - 1);
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

/// Messages and bytes that ranks send for a purpose, by (operation, layer).
struct Traffic {
  std::mutex mutex;
  std::map<std::pair<std::string, std::int64_t>, std::pair<std::int64_t, std::int64_t>> sent;
};

class CountingCommunicator : public ForwardingCommunicator {
 public:
  CountingCommunicator(Communicator& inner, Traffic& traffic) : ForwardingCommunicator(inner), traffic_(traffic) {}
  CountingCommunicator(std::unique_ptr<Communicator> inner, Traffic& traffic)
      : ForwardingCommunicator(std::move(inner)), traffic_(traffic) {}
  Request exchange(const ConstTensorView& send, int to, const TensorView& receive, int from,
                   const CallSite& site) override {
    if (to != no_peer) {
      const std::lock_guard lock(traffic_.mutex);
      auto& [messages, bytes] = traffic_.sent[{std::string(site.operation), site.layer}];
      ++messages;
      bytes += static_cast<std::int64_t>(send.bytes());
    }
    return inner().exchange(send, to, receive, from, site);
  }
  std::unique_ptr<Communicator> split(int colour) override {
    return std::make_unique<CountingCommunicator>(inner().split(colour), traffic_);
  }

 private:
  Traffic& traffic_;
};

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
    const Sequences sequences = random_sequences(config, 1, 256, /*documents=*/false, 8);  // 4 of 256: as 1K of 64K
    Traffic traffic;
    const RunOptions options{.ranks = ranks, .layout = layout};
    launch_threads({.ranks = ranks, .timeout_seconds = 60}, [&](Communicator& world) {
      CountingCommunicator counting(world, traffic);
      RankModel rank(config, options, sequences, counting);
      rank.train(sequences, sequences.denominator());
    });
    const auto of = [&](std::int64_t layer) { return traffic.sent.at({"ring keys and values", layer}); };
    const auto [full_messages, full_bytes] = of(5);
    std::int64_t bytes = full_bytes;
    for (std::int64_t layer = 0; layer < 5; ++layer) {
      const auto [messages, of_layer] = of(layer);
      // Forward and backward, keys apart from values where not all of a block travels.
      EXPECT_LE(messages, 2 * 2 * ranks * (layout == Layout::contiguous ? 1 : 2));
      EXPECT_LE(static_cast<double>(of_layer * full_messages),
                static_cast<double>(messages * full_bytes) / 2 * (3.5 * ranks / 256));  // three rows of a block's
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

/// Decodes a text token by token after a prompt, and returns the nll of each new token but the first.
std::vector<double> decoded_nll(const ModelConfig& config, int ranks, const Sequences& text, std::int64_t prompt,
                                std::vector<std::int64_t>& cached) {
  std::vector<double> nll;
  Sequences beginning = text;
  beginning.S = prompt;
  const RunOptions options{.ranks = ranks, .layout = Layout::zigzag};
  on_ring(config, options, text, [&](RankModel& rank) {
    const int self = rank.sequence_group.rank();
    cut(rank.batch, beginning, options.layout, ranks, self);
    const std::int64_t capacity = KeyValueCache::capacity_of((prompt + ranks - 1) / ranks, text.S - prompt, ranks);
    KeyValueCache cache(rank.allocator, model_spec(config), options.dtype, capacity, ranks, &rank.sequence_group);
    cache.begin(rank.batch.segments);
    rank.model.prefill(rank.batch, cache);
    Batch token(rank.allocator.host(), 1, 1, options.dtype);
    for (std::int64_t t = prompt; t < text.S; ++t) {
      const auto place = static_cast<std::size_t>(t);
      token.B = token.T = 1;
      token.segments = {{t, 1, 1}};
      token.tokens().as<std::int32_t>()[0] = text.tokens[place];
      token.labels().as<std::int32_t>()[0] = -1;
      token.positions().as<std::int32_t>()[0] = static_cast<std::int32_t>(t);
      token.weights().as<double>()[0] = 0;
      const TensorView logits = rank.model.decode(token, cache, /*wants_logits=*/self == 0);
      if (self != 0) continue;
      double sum = 0;
      for (std::int64_t v = 0; v < config.vocab_size; ++v) sum += std::exp(logits.as<double>()[v]);
      nll.push_back(std::log(sum) - logits.as<double>()[text.labels[place]]);
    }
    if (self != 0) return;
    for (const PlannedTensor& tensor : rank.allocator.live()) {
      if (tensor.name.ends_with("key and value cache")) {
        cached.push_back(static_cast<std::int64_t>(tensor.bytes));
      }
    }
  });
  return nll;
}

TEST(CacheOfAWindow, KeepsTheWindowAndDecodesWhatTheReferenceComputes) {
  for (const Architecture architecture :
       {Architecture::llama, Architecture::olmo3, Architecture::gemma2, Architecture::gemma3_text}) {
    const ModelConfig config = mixed_model(architecture);
    Sequences text = random_sequences(config, 1, 61, /*documents=*/false, 6);
    for (std::int64_t t = 0; t < text.S; ++t) {
      const auto place = static_cast<std::size_t>(t);
      text.labels[place] = t + 1 < text.S ? text.tokens[place + 1] : 0;
    }
    const ReferencePass pass = reference_pass({model_spec(config), test_weights(make_parameter_table(config))}, text,
                                              /*denominator=*/1, /*backward=*/false);
    for (const int ranks : {1, 2, 3}) {
      for (const std::int64_t prompt : {3, 20}) {
        SCOPED_TRACE(std::string(name_of(architecture)) + " on " + std::to_string(ranks) + " after " +
                     std::to_string(prompt));
        std::vector<std::int64_t> cached;
        const std::vector<double> nll = decoded_nll(config, ranks, text, prompt, cached);
        const std::vector<double> expected(pass.nll.begin() + prompt, pass.nll.end());
        EXPECT_LE(relative_difference(nll, expected), 1e-11);
        ASSERT_EQ(cached.size(), 4u);
        const std::int64_t token = 2 * config.num_key_value_heads * config.head_dim * 8;
        const std::set<std::int64_t> sizes(cached.begin(), cached.end());
        const auto rounded = [](std::int64_t bytes) { return (bytes + 63) / 64 * 64; };
        EXPECT_EQ(sizes.count(rounded(config.sliding_window * token)), 1u);  // whatever the text's length
        EXPECT_EQ(sizes.size(), 2u);
      }
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
