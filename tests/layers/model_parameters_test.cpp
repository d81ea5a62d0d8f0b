// The parameter table: buckets, decay, initial values, and equality on every rank.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "framework/config/model_config.h"
#include "layers/model_parameters.h"
#include "tests/layers/harness.h"

namespace ringtrain::testing {
namespace {

std::map<std::string, Parameter> by_name(const ModelConfig& config) {
  std::map<std::string, Parameter> result;
  const ParameterTable table = make_parameter_table(config);
  for (const Parameter& parameter : table.all()) result[parameter.name] = parameter;
  return result;
}

TEST(ModelParameters, GroupsAreEmbeddingBlocksHead) {
  const auto llama = by_name(small_llama());
  EXPECT_EQ(llama.at("model.embed_tokens.weight").bucket, 0);
  EXPECT_EQ(llama.at("model.layers.0.self_attn.q_proj.weight").bucket, 1);
  EXPECT_EQ(llama.at("model.layers.2.mlp.down_proj.weight").bucket, 3);
  EXPECT_EQ(llama.at("model.norm.weight").bucket, 4);
  EXPECT_FALSE(llama.contains("lm_head.weight"));
  ModelConfig untied = small_llama();
  untied.tie_word_embeddings = false;
  EXPECT_EQ(by_name(untied).at("lm_head.weight").bucket, 4);
  EXPECT_EQ(make_parameter_table(untied).buckets(), 5);
}

TEST(ModelParameters, CountsAreThoseOfTheFormula) {
  const ModelConfig c = small_llama();
  const std::int64_t C = c.hidden_size, F = c.intermediate_size, Q = c.num_attention_heads * c.head_dim,
                     K = c.num_key_value_heads * c.head_dim;
  EXPECT_EQ(make_parameter_table(c).count(),
            c.vocab_size * C + c.num_hidden_layers * (2 * C * Q + 2 * C * K + 3 * C * F + 2 * C) + C);
  const ModelConfig g = small_gpt2();
  EXPECT_EQ(make_parameter_table(g).count(), g.vocab_size * C + g.max_position_embeddings * C +
                                                 g.num_hidden_layers * (4 * C * C + 4 * C + 2 * C * F + F + C + 4 * C) +
                                                 2 * C);
}

TEST(ModelParameters, QwenAddsBiasesOrNormsOnlyToQueriesAndKeys) {
  const auto llama = by_name(small_llama()), qwen2 = by_name(small_model(Architecture::qwen2)),
             qwen3 = by_name(small_model(Architecture::qwen3));
  EXPECT_EQ(by_name(small_model(Architecture::mistral)).size(), llama.size());
  EXPECT_EQ(qwen2.size(), llama.size() + 3 * 3);
  EXPECT_EQ(qwen3.size(), llama.size() + 2 * 3);
  for (const char* name : {"q_proj.bias", "k_proj.bias", "v_proj.bias"}) {
    EXPECT_EQ(qwen2.at(std::string("model.layers.2.self_attn.") + name).bucket, 3);
  }
  for (const char* name : {"q_norm.weight", "k_norm.weight"}) {
    const Parameter& parameter = qwen3.at(std::string("model.layers.2.self_attn.") + name);
    EXPECT_EQ(parameter.shape, (Shape{small_llama().head_dim}));
    EXPECT_EQ(parameter.bucket, 3);
  }
}

TEST(ModelParameters, NormsAndBiasesDoNotDecay) {
  for (const Architecture architecture : all_architectures) {
    for (const auto& [name, parameter] : by_name(small_model(architecture))) {
      EXPECT_EQ(parameter.decay, parameter.shape.rank() == 2) << name;
      const bool norm_weight = name.ends_with("norm.weight");
      const double first = model_spec(small_model(architecture)).norm.unit_offset ? 0.0 : 1.0;  // relative to 1 there
      EXPECT_EQ(parameter.init_value, norm_weight ? first : 0.0) << name;
      EXPECT_EQ(parameter.init_stddev > 0, parameter.shape.rank() == 2) << name;
    }
  }
}

TEST(ModelParameters, Gpt2StartsWhatAddsToTheResidualSmaller) {
  const auto gpt2 = by_name(small_gpt2());
  const double range = small_gpt2().initializer_range, scaled = range / std::sqrt(2.0 * 3);
  EXPECT_DOUBLE_EQ(gpt2.at("model.layers.1.self_attn.o_proj.weight").init_stddev, scaled);
  EXPECT_DOUBLE_EQ(gpt2.at("model.layers.1.mlp.down_proj.weight").init_stddev, scaled);
  EXPECT_DOUBLE_EQ(gpt2.at("model.layers.1.mlp.up_proj.weight").init_stddev, range);
  EXPECT_DOUBLE_EQ(by_name(small_llama()).at("model.layers.1.mlp.down_proj.weight").init_stddev, range);
}

TEST(ModelParameters, InitialWeightsAreThoseOfTheTableAndTheSameOnEveryRank) {
  ModelConfig config = small_gpt2();
  config.vocab_size = 400;
  const Sequences sequences = random_sequences(config, 1, 6, false, 1);
  std::vector<std::vector<double>> weights(3);
  on_ring(config, {.ranks = 3}, sequences, [&](RankModel& rank) {
    const TensorView all = flat_weights(rank.parameters);
    for (std::int64_t i = 0; i < all.numel(); ++i) set_element(all, i, -9.0);  // new memory may contain anything
    initialize_weights(rank.stream, rank.parameters, 77);
    weights[rank.sequence_group.rank()] = elements(flat_weights(rank.parameters));
  });
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[0], weights[2]);
  const ParameterTable table = make_parameter_table(config);
  std::vector<char> is_parameter(weights[0].size(), 0);
  for (const Parameter& parameter : table.all()) {
    double sum = 0, squares = 0;
    const std::int64_t n = parameter.shape.numel();
    for (std::int64_t i = 0; i < n; ++i) {
      const double w = weights[0][parameter.offset + i];
      is_parameter[parameter.offset + i] = 1;
      sum += w;
      squares += w * w;
      if (parameter.init_stddev == 0) {
        EXPECT_EQ(w, parameter.init_value) << parameter.name;
      }
    }
    if (parameter.init_stddev > 0) {
      const auto count = static_cast<double>(n);
      EXPECT_NEAR(std::sqrt(squares / count) / parameter.init_stddev, 1.0, 4 / std::sqrt(2 * count));
      EXPECT_NEAR(sum / count / parameter.init_stddev, 0.0, 4.5 / std::sqrt(count)) << parameter.name;
    }
  }
  for (std::size_t i = 0; i < is_parameter.size(); ++i) {
    if (!is_parameter[i]) {
      ASSERT_EQ(weights[0][i], 0.0) << "padding at " << i;
    }
  }
}

TEST(ModelParameters, EveryParameterHasItsOwnRandomNumbers) {
  const ModelConfig config = small_llama();
  const Sequences sequences = random_sequences(config, 1, 6, false, 1);
  std::vector<double> weights, others;
  on_ring(config, {}, sequences, [&](RankModel& rank) {
    initialize_weights(rank.stream, rank.parameters, 77);
    weights = elements(flat_weights(rank.parameters));
    initialize_weights(rank.stream, rank.parameters, 78);
    others = elements(flat_weights(rank.parameters));
  });
  std::map<double, std::string> seen;
  const ParameterTable table = make_parameter_table(config);
  for (const Parameter& parameter : table.all()) {
    if (parameter.init_stddev == 0) continue;
    for (std::int64_t i = 0; i < parameter.shape.numel(); ++i) {
      const auto at = static_cast<std::size_t>(parameter.offset + i);
      ASSERT_NE(weights[at], others[at]) << parameter.name << " does not depend on the seed";
      const auto [first, is_new] = seen.try_emplace(weights[at], parameter.name);
      ASSERT_TRUE(is_new) << parameter.name << " repeats a number of " << first->second;
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
