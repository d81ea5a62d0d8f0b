// Models whose layers differ, compared with the plain double reference on every ring, layout, and length, with and
// without softcaps and sinks; and the cache of generation, which keeps no more than the window.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "layers/key_value_cache.h"
#include "layers/model_parameters.h"
#include "reference/model.h"
#include "tests/layers/harness.h"
#include "tests/layers/reference_pass.h"

namespace ringtrain::testing {
namespace {

/// A model with everything in which layers may differ: windows, none; two bases, a scaling; no rotation.
ModelConfig mixed_model(Architecture architecture) {
  ModelConfig config = small_model(architecture);
  config.num_hidden_layers = 4;
  config.sliding_window = 6;
  config.layer_types = {LayerType::sliding_attention, LayerType::full_attention, LayerType::sliding_attention};
  config.layer_positions = {LayerPositions::rope, LayerPositions::rope, LayerPositions::none, LayerPositions::rope};
  config.sliding_rope_theta = 30;
  config.rope_scaling.type = RopeType::linear;
  config.rope_scaling.factor = 3;
  return config;
}

/// And additional properties of scores, in any layer.
class MixedLayers : public ::testing::TestWithParam<std::tuple<Architecture, bool, bool>> {
 protected:
  static ModelConfig model() {
    const auto [architecture, softcap, sinks] = GetParam();
    ModelConfig config = mixed_model(architecture);
    config.attention_softcap = softcap ? 2.5 : 0;
    config.attention_sinks = sinks;
    return config;
  }
};

TEST_P(MixedLayers, EqualTheReferenceOnEveryRing) {
  const ModelConfig config = model();
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
          expect_agreement(run, pass, table);
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Models, MixedLayers,
                         ::testing::Combine(::testing::Values(Architecture::llama, Architecture::qwen3,
                                                              Architecture::olmo3, Architecture::gemma2,
                                                              Architecture::gemma3_text, Architecture::granite),
                                            ::testing::Bool(), ::testing::Bool()),
                         [](const auto& test) {
                           return std::string(name_of(std::get<0>(test.param))) +
                                  (std::get<1>(test.param) ? "_softcap" : "") +
                                  (std::get<2>(test.param) ? "_sinks" : "");
                         });

/// Decodes a text token by token after a prompt, and returns the nll of each new token except the first.
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
      const auto location = static_cast<std::size_t>(t);
      token.B = token.T = 1;
      token.segments = {{t, 1, 1}};
      token.tokens().as<std::int32_t>()[0] = text.tokens[location];
      token.labels().as<std::int32_t>()[0] = -1;
      token.positions().as<std::int32_t>()[0] = static_cast<std::int32_t>(t);
      token.weights().as<double>()[0] = 0;
      const TensorView logits = rank.model.decode(token, cache, /*wants_logits=*/self == 0);
      if (self != 0) continue;
      double sum = 0;
      for (std::int64_t v = 0; v < config.vocab_size; ++v) sum += std::exp(logits.as<double>()[v]);
      nll.push_back(std::log(sum) - logits.as<double>()[text.labels[location]]);
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
    ModelConfig config = mixed_model(architecture);
    config.attention_sinks = architecture != Architecture::llama && architecture != Architecture::olmo3;
    Sequences text = random_sequences(config, 1, 61, /*documents=*/false, 6);
    for (std::int64_t t = 0; t < text.S; ++t) {
      const auto location = static_cast<std::size_t>(t);
      text.labels[location] = t + 1 < text.S ? text.tokens[location + 1] : 0;
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
        EXPECT_EQ(sizes.count(rounded(config.sliding_window * token)), 1u);  // for a text of any length
        EXPECT_EQ(sizes.size(), 2u);
      }
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
