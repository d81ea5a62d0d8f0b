// Adapters of frozen weights: loss and gradients are those of the reference whose weights are W + (alpha / r) B A, by
// the chain rule in plain loops: dA = (alpha / r) B^T dW, dB = (alpha / r) dW A^T.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "tests/layers/harness.h"
#include "tests/layers/reference_pass.h"

namespace ringtrain::testing {
namespace {

using Values = std::map<std::string, std::vector<double>>;

ModelConfig with_adapters(ModelConfig config, const std::vector<std::string>& targets) {
  config.lora = {.rank = 3, .alpha = 5, .targets = targets};
  return config;
}

/// Returns numbers for every parameter of a model that depend on its name.
Values random_values(const ModelConfig& config) {
  Values values;
  const ParameterTable table = make_parameter_table(config);
  for (const Parameter& parameter : table.all()) {
    int id = 0;
    for (const char c : parameter.name) id = (id * 31 + c) % 65521;
    for (std::int64_t i = 0; i < parameter.shape.numel(); ++i) {
      values[parameter.name].push_back(test_weight(id, parameter.name, i));
    }
  }
  return values;
}

/// Adds factor * B A to the matrices that have an adapter.
Values merged(const ModelConfig& config, Values values) {
  const std::int64_t r = config.lora.rank;
  const ParameterTable table = make_parameter_table(config);
  for (const Parameter& a : table.all()) {
    if (!a.name.ends_with(".lora_A.weight")) continue;
    const std::string of = adapted_weight(a.name);
    std::vector<double>& w = values.at(of);
    const std::vector<double>&x = values.at(a.name), &y = values.at(lora_names(of).b);
    const std::int64_t in = a.shape[1], out = std::ssize(y) / r;
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < in; ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k < r; ++k) sum += y[o * r + k] * x[k * in + i];
        w[o * in + i] += config.lora.alpha / static_cast<double>(r) * sum;
      }
    }
  }
  return values;
}

void set_weights(RankModel& rank, const Values& values) {
  for (int id = 0; id < static_cast<int>(rank.table.all().size()); ++id) {
    const std::vector<double>& from = values.at(rank.table[id].name);
    const TensorView weight = rank.parameters.weight(id).flat();
    for (std::int64_t i = 0; i < weight.numel(); ++i) set_element(weight, i, from[i]);
  }
}

struct Outcome {
  double loss = 0, evaluated = 0;
  Values gradients;  // of trained parameters, summed over the ranks
};

Outcome run(const ModelConfig& config, const RunOptions& options, const Sequences& sequences, const Values& values) {
  Outcome outcome;
  std::mutex mutex;
  on_ring(config, options, sequences, [&](RankModel& rank) {
    set_weights(rank, values);
    rank.train(sequences, 3.0);
    rank.train(sequences, 3.0);
    const double loss = rank.model.take_loss_sum();
    double evaluated = 0;
    for (const double nll : rank.evaluate(sequences)) evaluated += nll;
    const std::lock_guard lock(mutex);
    outcome.loss += loss;
    outcome.evaluated += evaluated;
    for (const auto& [name, own] : trained_gradients(rank)) {
      std::vector<double>& sum = outcome.gradients[name];
      sum.resize(own.size());
      for (std::size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
    }
  });
  return outcome;
}

/// Returns the results of run(), which trains twice, for the reference with these weights; the gradients are those of
/// the weights.
Outcome reference_of(const ModelConfig& config, const Sequences& sequences, const Values& values) {
  ReferencePass pass = reference_pass({model_spec(config), values}, sequences, 3.0);
  for (auto& [name, gradient] : pass.gradients) {
    for (double& value : gradient) value *= 2;
  }
  return {2 * pass.loss_sum, std::accumulate(pass.nll.begin(), pass.nll.end(), 0.0), std::move(pass.gradients)};
}

/// Compares a gradient of an adapter with that of its matrix.
void expect_chain_rule(const ModelConfig& config, const Outcome& found, const Outcome& whole, const Values& values) {
  const std::int64_t r = config.lora.rank;
  const double factor = config.lora.alpha / static_cast<double>(r);
  for (const auto& [name, dw] : whole.gradients) {
    const LoraNames adapter = lora_names(name);
    if (!values.contains(adapter.a)) continue;
    const std::vector<double>&a = values.at(adapter.a), &b = values.at(adapter.b);
    const std::vector<double>&da = found.gradients.at(adapter.a), &db = found.gradients.at(adapter.b);
    const std::int64_t in = std::ssize(a) / r, out = std::ssize(b) / r;
    double largest = 0;
    for (const double x : dw) largest = std::max(largest, std::abs(x));
    EXPECT_GT(largest, 1e-6) << name;
    for (std::int64_t k = 0; k < r; ++k) {
      for (std::int64_t i = 0; i < in; ++i) {
        double expected = 0;
        for (std::int64_t o = 0; o < out; ++o) expected += factor * b[o * r + k] * dw[o * in + i];
        EXPECT_NEAR(da[k * in + i], expected, 1e-9 * largest) << name << " A";
      }
      for (std::int64_t o = 0; o < out; ++o) {
        double expected = 0;
        for (std::int64_t i = 0; i < in; ++i) expected += factor * dw[o * in + i] * a[k * in + i];
        EXPECT_NEAR(db[o * r + k], expected, 1e-9 * largest) << name << " B";
      }
    }
  }
}

void expect_gradients_of_the_sum(const ModelConfig& config, const RunOptions& options, const Sequences& sequences) {
  ModelConfig plain = config;
  plain.lora = {};
  const Values values = random_values(config);
  Values whole_values = merged(config, values);
  std::erase_if(whole_values, [](const auto& named) { return named.first.find(".lora_") != std::string::npos; });
  const Outcome whole = reference_of(plain, sequences, whole_values);
  const Outcome found = run(config, options, sequences, values);
  EXPECT_NEAR(found.loss, whole.loss, 1e-11 * whole.loss);
  EXPECT_NEAR(found.evaluated, whole.evaluated, 1e-11 * whole.evaluated);
  EXPECT_EQ(std::ssize(found.gradients), 2 * config.num_hidden_layers * std::ssize(config.lora.targets));
  for (const auto& [name, gradient] : found.gradients) EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
  expect_chain_rule(config, found, whole, values);
}

const std::vector<std::string> attention{"q_proj", "k_proj", "v_proj", "o_proj"};
const std::vector<std::string> all_gated{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
const std::vector<std::string> all_plain{"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"};

class LoraTest : public ::testing::TestWithParam<std::tuple<Architecture, int>> {};

TEST_P(LoraTest, GradientsAreThoseOfTheSum) {
  const auto& [architecture, ranks] = GetParam();
  const ModelConfig base = small_model(architecture);
  const ModelConfig config = with_adapters(base, model_spec(base).gated_feedforward ? all_gated : all_plain);
  const Sequences sequences = random_sequences(config, 2, 23, true, 3);
  for (const Recompute policy : all_recompute_policies) {
    expect_gradients_of_the_sum(config, {.ranks = ranks, .layout = Layout::zigzag, .recompute = policy}, sequences);
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, LoraTest,
                         ::testing::Combine(::testing::Values(Architecture::llama, Architecture::gpt2,
                                                              Architecture::qwen3),
                                            ::testing::Values(1, 2, 3)),
                         [](const auto& test) {
                           return std::string(name_of(std::get<0>(test.param))) +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST(Lora, TokensComeInSeveralPieces) {
  ModelConfig config = with_adapters(small_llama(), {"down_proj", "o_proj"});
  config.sliding_window = 8;
  config.num_hidden_layers = 1;
  const Sequences sequences = random_sequences(config, 1, 4500, false, 3);
  expect_gradients_of_the_sum(config, {.feedforward_chunk = 0, .loss_chunk = 512}, sequences);
}

TEST(Lora, ANewModelIsItsBaseToTheBit) {
  const ModelConfig base = small_llama(), config = with_adapters(base, all_gated);
  const Sequences sequences = random_sequences(config, 1, 23, false, 3);
  std::map<std::string, std::vector<double>> weights;
  double loss = 0;
  std::vector<double> normed;  // squares of A's elements over the variance of their distribution
  for (const ModelConfig& model : {base, config}) {
    on_ring(model, {}, sequences, [&](RankModel& rank) {
      initialize_weights(rank.stream, rank.parameters, 7);
      rank.train(sequences, 3.0);
      const double own = rank.model.take_loss_sum();
      if (!model.lora.on()) loss = own;
      EXPECT_EQ(own, loss);
      for (int id = 0; id < static_cast<int>(rank.table.all().size()); ++id) {
        const std::string& name = rank.table[id].name;
        const std::vector<double> values = elements(rank.parameters.weight(id));
        if (!model.lora.on()) weights[name] = values;
        if (name.find(".lora_") == std::string::npos) {
          EXPECT_EQ(values, weights.at(name)) << name;
          EXPECT_EQ(rank.parameters.trains(id), !model.lora.on()) << name;
          continue;
        }
        for (const double value : values) {
          if (name.ends_with("lora_A.weight")) {
            normed.push_back(value * value * 3 * static_cast<double>(rank.table[id].shape[1]));
          } else {
            EXPECT_EQ(value, 0) << name;
          }
        }
      }
    });
  }
  const double variance = std::accumulate(normed.begin(), normed.end(), 0.0) / static_cast<double>(normed.size());
  EXPECT_NEAR(variance, 1, 0.2);
}

TEST(Lora, TrainableNamesWhatIsTrainedInAdditionToAdapters) {
  const ModelConfig config = with_adapters(small_llama(), attention);
  const ParameterTable table = describe_parameters(model_spec(config), {"*norm*", "model.embed_tokens.*"}).table;
  for (const Parameter& parameter : table.all()) {
    const bool is_named = parameter.name.find("norm") != std::string::npos || parameter.name.find("embed") < 20;
    EXPECT_EQ(parameter.part == Part::trainable, is_named || parameter.adapter) << parameter.name;
    EXPECT_EQ(parameter.saved, parameter.part == Part::trainable) << parameter.name;
  }
}

TEST(Lora, AdaptersHaveScratchOfTheirRank) {
  const auto workspace = [](const ModelConfig& config, std::int64_t tokens) {
    ExecutionShape shape;
    shape.max_tokens = shape.max_ring_tokens = tokens;
    return static_cast<std::int64_t>(plan(config, shape).use[Tag::workspace]);
  };
  ModelConfig config = with_adapters(small_llama(), attention);
  config.lora.rank = 16;
  for (const std::int64_t tokens : {1000, 100'000}) {
    EXPECT_EQ(workspace(config, tokens) - workspace(small_llama(), tokens), std::min<std::int64_t>(tokens, 4096) * 64);
  }
}

}  // namespace
}  // namespace ringtrain::testing
