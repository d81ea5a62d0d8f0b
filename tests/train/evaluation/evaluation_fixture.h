// What tests of evaluate share: token files, and a model with the test's own weights that is evaluated on a mesh.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "layers/model_parameters.h"
#include "tests/train/train_fixture.h"
#include "train/engine/rank_state.h"
#include "train/evaluation/evaluator.h"
#include "train/models/load_weights.h"
#include "train/models/model_source.h"

namespace ringtrain::testing {

/// Runs body on every rank of the config's mesh, with a state for evaluating sequences of these lengths.
inline void on_ranks(const Config& config, const std::vector<std::int64_t>& lengths,
                     const std::function<void(RankState&)>& body) {
  const RankPurpose purpose{.training = false, .evaluation_lengths = lengths};
  const ParameterTable table = make_parameter_table(config.model);
  launch_threads({static_cast<int>(config.mesh.data * config.mesh.sequence), 120}, [&](Communicator& world) {
    ThreadPool pool(1);
    RankState state(config, table, purpose, world.rank(), Device::cpu(), pool, &world);
    body(state);
  });
}

/// Runs body on one rank with a run's model, whose head processes a sequence at once.
inline void on_model(const std::string& run, std::int64_t longest, const std::function<void(RankState&)>& body) {
  const ModelSource source = open_model(run);
  Config config = source.checkpoint->config;
  config.mesh = {.data = 1, .sequence = 1};
  config.mesh.threads_per_rank = 1;
  config.training.loss_chunk = longest;
  on_ranks(config, {longest}, [&](RankState& state) {
    load_weights(state, &source);
    body(state);
  });
}

class EvaluationTest : public TrainTest {
 protected:
  std::unique_ptr<TokenFile> tokens(const TextPlan& plan) {
    return TokenFile::open(write_tokens(fmt::format("text{}.h5", files_++), plan));
  }
  /// Evaluates a model with the weights of `set`, on a mesh.
  std::vector<LengthResult> evaluate(const Config& config, const TokenFile& file, const EvaluationRequest& request,
                                     const std::function<void(RankState&)>& set) {
    const EvaluationTargets targets = choose_targets(file, request);
    std::vector<std::vector<LengthResult>> results(config.mesh.data * config.mesh.sequence);
    on_ranks(config, request.context_lengths, [&](RankState& state) {
      set(state);
      results[state.rank] = evaluate_targets(state, file, targets, nullptr, nullptr).value();
    });
    for (const auto& other : results) {  // every rank has the same results
      EXPECT_EQ(other.size(), results[0].size());
      for (std::size_t i = 0; i < other.size(); ++i) EXPECT_EQ(other[i].nll.value, results[0][i].nll.value);
    }
    return results[0];
  }
  static void initialize(RankState& state) { initialize_weights(state.stream, state.parameters, 3); }
  /// Expects a model's evaluation on these meshes to equal that on one rank.
  void expect_equal_on(const std::vector<std::tuple<int, int, const char*>>& meshes, const TokenFile& file,
                       const EvaluationRequest& request) {
    const std::vector<std::string> wide{"model.initializer_range=0.3", "training.global_batch_size=24"};
    const auto reference = evaluate(tiny("none", wide), file, request, initialize);
    EXPECT_GT(std::abs(reference.back().delta.value), 1e-3) << "context should matter to this model";
    for (const auto& [data_ranks, sequence, layout] : meshes) {
      SCOPED_TRACE(fmt::format("{}x{} {}", data_ranks, sequence, layout));
      const auto results = evaluate(
          tiny("none", joined(joined(wide, mesh_of(data_ranks, sequence)), {std::string("mesh.layout=") + layout})),
          file, request, initialize);
      for (std::size_t i = 0; i < reference.size(); ++i) {
        EXPECT_EQ(results[i].targets, reference[i].targets);
        EXPECT_NEAR(results[i].nll.value, reference[i].nll.value, 1e-12 * reference[i].nll.value);
        EXPECT_NEAR(results[i].nll.ci95.low, reference[i].nll.ci95.low, 1e-11);
        EXPECT_NEAR(results[i].delta.value, reference[i].delta.value, 1e-11);
        ASSERT_EQ(results[i].by_position.size(), reference[i].by_position.size());
        for (std::size_t k = 0; k < results[i].by_position.size(); ++k) {
          const PositionResult &one = results[i].by_position[k], &other = reference[i].by_position[k];
          EXPECT_EQ(one.targets, other.targets);
          EXPECT_NEAR(one.nll.value, other.nll.value, 1e-9);
          EXPECT_NEAR(one.nll.ci95.low, other.nll.ci95.low, 1e-9);
          EXPECT_NEAR(one.cut.value, other.cut.value, 1e-9);
          EXPECT_NEAR(one.cut.ci95.high, other.cut.ci95.high, 1e-9);
        }
      }
    }
  }

 private:
  int files_ = 0;
};

inline const TextPlan long_text{.vocab_size = 23,
                                .documents = 40,
                                .shortest = 20,
                                .longest = 260,
                                .validation_documents = 30,
                                .weights = false,
                                .seed = 4};

}  // namespace ringtrain::testing
