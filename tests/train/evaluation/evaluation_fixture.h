// What tests of evaluate share: token files, and a model of the test's own weights that is evaluated on a mesh.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/train/train_fixture.h"
#include "train/engine/rank_state.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/evaluation/evaluator.h"

namespace ringtrain::testing {

class EvaluationTest : public TrainTest {
 protected:
  std::unique_ptr<TokenFile> tokens(const TextPlan& plan) {
    return TokenFile::open(write_tokens(fmt::format("text{}.h5", files_++), plan));
  }
  /// Evaluates a model whose weights `set` makes, on a mesh.
  std::vector<LengthResult> evaluate(const Config& config, const TokenFile& file, const EvaluationRequest& request,
                                     const std::function<void(RankState&)>& set) {
    const RankPurpose purpose{.training = false, .evaluation_lengths = request.context_lengths};
    const ParameterTable table = make_parameter_table(config.model);
    const EvaluationTargets targets = choose_targets(file, request);
    std::vector<std::vector<LengthResult>> results(config.mesh.data * config.mesh.sequence);
    launch_threads({static_cast<int>(results.size()), 60}, [&](Communicator& world) {
      ThreadPool pool(1);
      RankState state(config, table, purpose, world.rank(), Device::cpu(), pool, &world);
      set(state);
      results[world.rank()] = evaluate_targets(state, file, request, targets, nullptr, nullptr).value();
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
