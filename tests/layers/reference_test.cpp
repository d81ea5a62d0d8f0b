// The reference with which `check` and tests compare runs: it is compared with PyTorch's numbers, and its gradients
// with finite differences of its own loss. Then the model is compared with it where PyTorch gave no numbers.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/model_parameters.h"
#include "tests/layers/golden.h"
#include "tests/layers/reference_pass.h"

namespace ringtrain::testing {
namespace {

using reference::Tensors;

class GoldenReference : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenReference, LossAndEveryGradientEqualPyTorch) {
  const Golden golden = read_golden(GetParam());
  const ParameterTable table = make_parameter_table(golden.config);
  const reference::Model model(model_spec(golden.config), test_weights(table));
  const ReferencePass pass = reference_pass(model, golden.sequences, golden.denominator);
  EXPECT_NEAR(pass.loss_sum / golden.loss_sum, 1.0, 1e-12);
  EXPECT_LE(relative_difference(pass.nll, golden.nll), 1e-12);
  EXPECT_EQ(pass.gradients.size(), golden.parameters.size());
  const bool rotates = model_spec(golden.config).positions == Positions::rope;
  for (const Golden::Parameter& parameter : golden.parameters) {
    if (parameter.name.ends_with("k_proj.bias") && !rotates) continue;  // 0 except for rounding
    EXPECT_LE(relative_difference(pass.gradients.at(parameter.name), parameter.gradient), 1e-11) << parameter.name;
  }
}
INSTANTIATE_TEST_SUITE_P(Models, GoldenReference, ::testing::ValuesIn(golden_models),
                         [](const auto& test) { return std::string(test.param); });

ModelConfig small(Architecture architecture, RopeType rope = RopeType::none, std::int64_t window = 0) {
  ModelConfig config = small_model(architecture);
  config.vocab_size = 11;
  config.hidden_size = 8;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.num_key_value_heads = architecture == Architecture::gpt2 ? 2 : 1;
  config.head_dim = 6;
  config.intermediate_size = 10;
  config.rope_theta = 500;
  config.max_position_embeddings = 32;
  config.sliding_window = window;
  config.tie_word_embeddings = window == 0;
  config.attention_bias = config.mlp_bias = architecture == Architecture::llama;
  config.attention_sinks = architecture == Architecture::mistral || architecture == Architecture::gemma2;
  config.rope_scaling.type = rope;
  config.rope_scaling.factor = 4;
  config.rope_scaling.original_max_position_embeddings = 8;
  config.rope_scaling.short_factor = {1, 1.5, 2};
  config.rope_scaling.long_factor = {2, 3, 5};
  return config;
}

TEST(Reference, EveryGradientEqualsFiniteDifferences) {
  for (const Architecture architecture : all_architectures) {
    SCOPED_TRACE(name_of(architecture));
    const ModelConfig config = small(architecture, RopeType::none, 4);
    const Sequences sequences = random_sequences(config, 2, 9, /*documents=*/true, 3);
    // Gemma 3's queries and keys, each normed and scaled by 1 + weight, make scores with more curvature; so do
    // softcaps.
    const double denominator = sequences.denominator(), step = model_spec(config).norm.unit_offset ? 4e-5 : 4e-4;
    const Tensors weights = test_weights(make_parameter_table(config));
    const ReferencePass exact = reference_pass({model_spec(config), weights}, sequences, denominator);
    for (const auto& [name, values] : weights) {
      const reference::Vector& gradient = exact.gradients.at(name);
      double largest = 0;
      for (double g : gradient) largest = std::max(largest, std::abs(g));
      for (std::size_t i = 0; i < values.size(); i += 1 + values.size() / 7) {
        const auto loss_at = [&](double h) {
          Tensors moved = weights;
          moved[name][i] += h;
          return reference_pass({model_spec(config), std::move(moved)}, sequences, 1, false).loss_sum / denominator;
        };
        const double slope =
            (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) / (12 * step);
        EXPECT_NEAR(gradient[i], slope, 1e-8 * largest + 1e-11) << name << " " << i;
      }
    }
  }
}

// The golden files have no such scaling: this compares two independently written formulas.
TEST(Reference, IsWhatTheModelComputesUnderEveryRopeScaling) {
  for (const RopeType type : all_rope_types) {
    for (const std::int64_t S : {7, 19}) {  // below and above the trained length
      SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(S));
      const ModelConfig config = small(Architecture::llama, type);
      const Sequences sequences = random_sequences(config, 2, S, /*documents=*/true, 4);
      const double denominator = sequences.denominator();
      const ParameterTable table = make_parameter_table(config);
      const ReferencePass pass = reference_pass({model_spec(config), test_weights(table)}, sequences, denominator);
      const RunResult run = run_training(config, {.ranks = 3, .layout = Layout::zigzag}, sequences, denominator);
      expect_agreement(run, pass, table);
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
