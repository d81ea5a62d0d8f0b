// Random models that generate, on any device and any ring; and their forward passes over the text without a cache.
#pragma once

#include <algorithm>
#include <limits>

#include "data/loader.h"
#include "framework/random.h"
#include "layers/model_parameters.h"
#include "tests/train/train_fixture.h"
#include "train/generation/generator.h"

namespace ringtrain::testing {

using Tokens = std::vector<std::int32_t>;

/// Models that generate on every device, by name.
inline const std::vector<std::pair<const char*, std::vector<std::string>>> common_models{
    {"llama", {}},
    {"a window", {"model.architecture=mistral", "model.sliding_window=7"}},
    {"gpt2", {"model.architecture=gpt2", "model.max_position_embeddings=300", "model.num_key_value_heads=4"}},
    {"qwen3", {"model.architecture=qwen3", "model.head_dim=12"}}};

class GenerationTest : public TrainTest {
 protected:
  Config model(const std::vector<std::string>& settings) const {
    return tiny("none", joined(settings, {"model.initializer_range=0.4", "training.seq_len=300",
                                          "training.feedforward_chunk=16"}));
  }
  static Tokens random_prompt(std::int64_t length, std::uint64_t seed) {
    Tokens prompt;
    for (std::int64_t i = 0; i < length; ++i) {
      prompt.push_back(static_cast<std::int32_t>(random_below(seed, Purpose::test, static_cast<std::uint64_t>(i), 23)));
    }
    return prompt;
  }
  static Config on_ring(Config config, std::int64_t ranks, Layout layout = Layout::zigzag) {
    config.mesh.sequence = ranks;
    config.mesh.layout = layout;
    return config;
  }
  /// Gives a rank a random model with nonzero adapters.
  static void initialize(RankState& state) {
    initialize_weights(state.stream, state.parameters, 3);
    const ParameterTable& table = state.parameters.table();
    for (int id = 0; id < static_cast<int>(table.all().size()); ++id) {
      Parameter parameter = table[id];
      if (!parameter.adapter) continue;
      parameter.init_stddev = 0.4;
      initialize_parameter(state.stream, parameter, 3, 0, state.parameters.weight(id));
    }
  }
  /// Generates with a random model, on the device of config. Returns the new tokens.
  static Tokens generated(const Config& config, const GenerationRequest& request,
                          const TokenObserver& observer = nullptr) {
    const RankPurpose purpose{
        .training = false, .prompt_tokens = std::ssize(request.prompt), .new_tokens = request.new_tokens};
    const ParameterTable table = make_parameter_table(config.model);
    const auto plans = plan_ranks(config, table, purpose);
    Tokens tokens;
    launch_threads({static_cast<int>(config.mesh.sequence), 60}, [&](Communicator& world) {
      ThreadPool pool(1);
      RankState state(config, table, purpose, world.rank(), device_of(config.training, 0, {}), pool, &world);
      initialize(state);
      const std::int64_t allocations = state.allocator.allocation_count();
      const GenerationRates rates = generate(state, request, [&](std::int32_t token) {
        tokens.push_back(token);
        return observer ? observer(token) : true;
      });
      EXPECT_EQ(state.allocator.allocation_count(), allocations);
      EXPECT_EQ(rates.prompt_tokens, std::ssize(request.prompt));
      for (const RankPlan& plan : plans) {
        if (std::ranges::find(plan.ranks, state.rank) != plan.ranks.end()) {
          EXPECT_EQ(state.allocator.peak().total, plan.peak.total) << "the plan is what is allocated";
        }
      }
      state.close();
    });
    return tokens;
  }
  /// Returns nll[v][t] in double of token v after tokens [0, t] of a text, with one forward pass for each v.
  static std::vector<std::vector<double>> teacher_forced(Config config, const Tokens& text) {
    config.mesh.sequence = 1;
    config.training.device = Device::Kind::cpu;
    config.training.dtype = DType::float64;
    const std::int64_t length = std::ssize(text);
    const ParameterTable table = make_parameter_table(config.model);
    std::vector<std::vector<double>> nll;
    launch_threads({1, 60}, [&](Communicator& world) {
      ThreadPool pool(2);
      RankState state(config, table, {.training = false, .evaluation_lengths = {length}}, 0, Device::cpu(), pool,
                      &world);
      initialize(state);
      for (std::int32_t v = 0; v < 23; ++v) {
        load_sequence(state.batch, text, state.shard);
        std::fill_n(state.batch.labels().as<std::int32_t>(), length, v);
        const TensorView values = state.evaluation_nll.view().prefix({1, length});
        state.model->evaluate(state.batch, values);
        nll.emplace_back(values.as<double>(), values.as<double>() + length);
      }
    });
    return nll;
  }
  /// Expects each new token's nll after its prefix to be within `slack` of the minimum over all tokens.
  static void expect_greedy(const Config& config, const Tokens& prompt, const Tokens& tokens, double slack) {
    Tokens text = prompt;
    text.insert(text.end(), tokens.begin(), tokens.end());
    const auto nll = teacher_forced(config, text);
    for (std::size_t t = prompt.size() - 1; t + 1 < text.size(); ++t) {
      double least = std::numeric_limits<double>::infinity();
      for (const auto& of_token : nll) least = std::min(least, of_token[t]);
      ASSERT_LE(nll[text[t + 1]][t], least + slack) << "new token at " << t + 1;
    }
  }
};

}  // namespace ringtrain::testing
