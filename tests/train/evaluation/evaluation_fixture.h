// What tests of evaluate share: token files, and a model of the test's own weights that is evaluated on a mesh.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layers/model_parameters.h"
#include "tests/train/train_fixture.h"
#include "train/engine/rank_state.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/evaluation/evaluator.h"
#include "train/models/load_weights.h"
#include "train/models/model_source.h"

namespace ringtrain::testing {

/// Runs body on every rank of the config's mesh, with the state of one that evaluates sequences of these lengths.
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

/// Runs body on one rank that has a run's model, whose head takes a sequence at once.
inline void on_model(const std::string& run, std::int64_t longest, const std::function<void(RankState&)>& body) {
  const ModelSource source = open_model(run);
  Config config = source.checkpoint->config;
  config.mesh = {.data = 1, .sequence = 1};
  config.mesh.threads_per_rank = 1;
  config.training.loss_chunk = longest;
  on_ranks(config, {longest}, [&](RankState& state) {
    load_weights(state, source);
    body(state);
  });
}

class EvaluationTest : public TrainTest {
 protected:
  std::unique_ptr<TokenFile> tokens(const TextPlan& plan) {
    return TokenFile::open(write_tokens(fmt::format("text{}.h5", files_++), plan));
  }
  /// Evaluates a model whose weights `set` makes, on a mesh.
  std::vector<LengthResult> evaluate(const Config& config, const TokenFile& file, const EvaluationRequest& request,
                                     const std::function<void(RankState&)>& set) {
    const EvaluationTargets targets = choose_targets(file, request);
    std::vector<std::vector<LengthResult>> results(config.mesh.data * config.mesh.sequence);
    on_ranks(config, request.context_lengths, [&](RankState& state) {
      set(state);
      results[state.rank] = evaluate_targets(state, file, targets, nullptr, nullptr).value();
    });
    for (const auto& other : results) {  // every rank knows the same
      EXPECT_EQ(other.size(), results[0].size());
      for (std::size_t i = 0; i < other.size(); ++i) EXPECT_EQ(other[i].nll.value, results[0][i].nll.value);
    }
    return results[0];
  }
  static void initialise(RankState& state) { state.model->initialise(3); }

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
