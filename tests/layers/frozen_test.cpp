// A partly frozen model: the gradients of the other parameters are those of the whole model's backward, bit for bit,
// nothing is computed or kept for frozen parameters, and backward ends where nothing below is trained.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/layers/harness.h"

namespace ringtrain::testing {
namespace {

struct Outcome {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;  // of rank 1, by name
};

Outcome train(const ModelConfig& config, const RunOptions& options, const Sequences& sequences) {
  Outcome outcome;
  std::mutex mutex;
  on_ring(config, options, sequences, [&](RankModel& rank) {
    rank.train(sequences, 3.0);
    rank.train(sequences, 3.0);
    const double loss = rank.model.take_loss_sum();
    const std::lock_guard lock(mutex);
    outcome.loss += loss;
    if (rank.sequence_group.rank() == 1) outcome.gradients = trained_gradients(rank);
  });
  return outcome;
}

struct FrozenCase {
  const char* name;
  std::vector<std::string> trainable;
};

class FrozenTest : public ::testing::TestWithParam<std::tuple<Architecture, FrozenCase>> {};

TEST_P(FrozenTest, GradientsOfTheRestAreThoseOfTheWholeModel) {
  const auto& [architecture, frozen] = GetParam();
  ModelConfig config = small_model(architecture);
  config.tie_word_embeddings = frozen.name == std::string("Tied");
  const Sequences sequences = random_sequences(config, 2, 23, true, 3);
  for (const Recompute policy : all_recompute_policies) {
    const RunOptions all{.ranks = 2, .layout = Layout::zigzag, .recompute = policy};
    RunOptions some = all;
    some.trainable = frozen.trainable;
    const Outcome expected = train(config, all, sequences), found = train(config, some, sequences);
    EXPECT_EQ(found.loss, expected.loss);
    EXPECT_LT(found.gradients.size(), expected.gradients.size());
    EXPECT_GT(found.gradients.size(), 0u);
    for (const auto& [name, gradient] : found.gradients) EXPECT_EQ(gradient, expected.gradients.at(name)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Parts, FrozenTest,
    ::testing::Combine(::testing::Values(Architecture::llama, Architecture::gpt2),
                       ::testing::Values(FrozenCase{"Norms", {"*norm*"}}, FrozenCase{"Biases", {"*.bias", "*norm*"}},
                                         FrozenCase{"LastLayer", {"model.layers.2.*"}},
                                         FrozenCase{"MiddleLayer", {"model.layers.1.mlp.*"}},
                                         FrozenCase{"Head", {"lm_head.*", "model.norm.*"}},
                                         FrozenCase{"Embedding", {"model.embed_tokens.weight"}},
                                         FrozenCase{"Tied", {"model.embed_tokens.weight", "*.q_proj.*"}})),
    [](const auto& test) { return std::string(name_of(std::get<0>(test.param))) + std::get<1>(test.param).name; });

TEST(FrozenMemory, NothingIsKeptForLayersThatBackwardDoesNotReach) {
  const ModelConfig config = small_llama();
  const auto plan_of = [&](const std::vector<std::string>& trainable) {
    ExecutionShape shape;
    shape.max_tokens = shape.max_ring_tokens = 4096;
    return plan(config, shape, trainable).use;
  };
  const MemoryUse all = plan_of({}), last = plan_of({"model.layers.2.*"}), middle = plan_of({"model.layers.1.*"});
  const auto kept = [](const MemoryUse& use) { return static_cast<std::int64_t>(use[Tag::activations]); };
  EXPECT_EQ(kept(all) - kept(middle), kept(middle) - kept(last));  // those of one layer
  EXPECT_GT(kept(middle), kept(last));
  EXPECT_EQ(all[Tag::weights], middle[Tag::weights]);
  EXPECT_LT(3 * middle[Tag::gradients], all[Tag::gradients]);
}

}  // namespace
}  // namespace ringtrain::testing
