// Gradients of the whole model against finite differences of evaluate()'s loss, in double: forward alone is the
// witness of backward. A five-point stencil, so that the tolerance can be tight.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/config/model_config.h"
#include "layers/model_parameters.h"
#include "tests/layers/harness.h"

namespace ringtrain::testing {
namespace {

constexpr double step = 2e-3, tolerance = 2e-8;

struct Case {
  const char* name;
  ModelConfig config;
  RunOptions options;
  bool documents;
};

ModelConfig with_window(ModelConfig config) {
  config.sliding_window = 5;
  config.tie_word_embeddings = false;
  if (model_spec(config).positions == Positions::rope) {
    config.rope_scaling.type = RopeType::yarn;
    config.rope_scaling.factor = 2.0;
    config.rope_scaling.original_max_position_embeddings = 16;
  }
  return config;
}

class GradientTest : public ::testing::TestWithParam<Case> {};

TEST_P(GradientTest, EqualsFiniteDifferences) {
  const auto& [name, config, options, documents] = GetParam();
  const Sequences sequences = random_sequences(config, 2, 11, documents, 5);
  const double denominator = sequences.denominator();
  const RunResult result = run_training(config, options, sequences, denominator);
  const ParameterTable table = make_parameter_table(config);
  // Every parameter: the directional derivative along a random direction of all its elements, and one single element.
  for (int id = 0; id < static_cast<int>(table.all().size()); ++id) {
    const Parameter& parameter = table[id];
    const std::int64_t n = parameter.shape.numel();
    const auto single =
        static_cast<std::int64_t>(splitmix64(static_cast<std::uint64_t>(id)) % static_cast<std::uint64_t>(n));
    for (const bool all : {true, false}) {
      const auto direction = [&](std::int64_t i) {
        return all ? uniform(900 + static_cast<std::uint64_t>(id), static_cast<std::uint64_t>(i)) /
                         std::sqrt(static_cast<double>(n))
                   : (i == single ? 1.0 : 0.0);
      };
      double expected = 0, largest = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const double g = result.gradients[parameter.offset + i];
        expected += g * direction(i);
        largest = std::max(largest, std::abs(g));
      }
      const auto loss_at = [&](double h) {
        return run_evaluation(config, options, sequences,
                              [&](ParameterStore& parameters) {
                                const TensorView w = parameters.weight(id);
                                for (std::int64_t i = 0; i < n; ++i)
                                  set_element(w, i, element(w, i) + h * direction(i));
                              })
                   .loss_sum /
               denominator;
      };
      const double difference =
          (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) / (12 * step);
      EXPECT_NEAR(difference, expected, tolerance * std::max(largest, 1e-2))
          << parameter.name << (all ? "" : " element ") << (all ? "" : std::to_string(single));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, GradientTest,
    ::testing::Values(Case{"llama", small_llama(), {}, false}, Case{"gpt2", small_gpt2(), {}, true},
                      Case{"llama_ring_documents_window",
                           with_window(small_llama()),
                           {.ranks = 3, .layout = Layout::zigzag, .recompute = Recompute::keep_attention},
                           true},
                      Case{"qwen2", small_model(Architecture::qwen2), {.ranks = 2, .layout = Layout::striped}, true},
                      Case{"qwen3", small_model(Architecture::qwen3), {}, false},
                      Case{"qwen3_ring_documents_window",
                           with_window(small_model(Architecture::qwen3)),
                           {.ranks = 3, .layout = Layout::zigzag, .recompute = Recompute::full},
                           true},
                      Case{"gpt2_ring_window",
                           with_window(small_gpt2()),
                           {.ranks = 2, .layout = Layout::striped, .recompute = Recompute::full},
                           false}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace ringtrain::testing
