// Whole runs that shard their gradients or weights, and runs that freeze a part of the model: the numbers of a run that
// does neither, checkpoints that all of them can go on from, memory as planned.
#include <algorithm>

#include "framework/config/read_config.h"
#include "layers/check_model.h"
#include "layers/model_parameters.h"
#include "parallel/launch/launcher.h"
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/engine/rank_state.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/generation/generator.h"

namespace ringtrain::testing {
namespace {

class Sharding : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    data = write_split_tokens();
  }
  Config with(std::vector<std::string> settings, Shard shard) const {
    settings.push_back(fmt::format("training.shard={}", name_of(shard)));
    return tiny(data, settings);
  }
  /// Trains with each policy, and expects bits (tolerance 0) or numbers of the run that shards the optimizer alone.
  void expect_equal(const std::string& name, const std::vector<std::string>& settings, double tolerance) {
    SCOPED_TRACE(name);
    run(with(settings, Shard::optimizer), name);
    const auto reference = losses(name);
    const std::int64_t last = std::ssize(reference);
    ASSERT_GE(last, 3);
    const auto weights = state(checkpoint(name, last));
    for (const Shard shard : {Shard::gradients, Shard::weights}) {
      SCOPED_TRACE(name_of(shard));
      const std::string sharded = fmt::format("{}-{}", name, name_of(shard));
      run(with(settings, shard), sharded);
      if (tolerance == 0) {
        EXPECT_EQ(losses(sharded), reference);
        EXPECT_EQ(numbers(sharded, "grad_norm"), numbers(name, "grad_norm"));
        EXPECT_EQ(state(checkpoint(sharded, last)), weights);
      } else {
        const auto found = losses(sharded);
        ASSERT_EQ(found.size(), reference.size());
        for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], reference[i], tolerance * reference[i]);
        expect_same_state(state(checkpoint(sharded, last)), weights, "weights/", tolerance);
      }
    }
  }
  std::string data;
};

const std::vector<std::string> gpt2{"model.architecture=gpt2", "model.num_key_value_heads=4",
                                    "model.max_position_embeddings=37"};

std::vector<std::string> join(std::vector<std::string> one, const std::vector<std::string>& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

TEST_F(Sharding, ChangesNoBitOfAStepOfOneMicroBatch) {
  const std::vector<std::string> one{"training.steps=3", "training.global_batch_size=4"};
  const std::vector<std::string> ring{"mesh.sequence=3", "mesh.layout=striped", "training.micro_batch_size=4"};
  const std::vector<std::string> grid{"mesh.data=2", "mesh.sequence=2", "training.micro_batch_size=2"};
  expect_equal("ring", join(one, ring), 0);
  expect_equal("grid", join(one, join(grid, {"training.dtype=float32", "training.recompute=full"})), 0);
  expect_equal("untied", join(one, join(grid, {"model.tie_word_embeddings=false", "model.num_hidden_layers=5"})), 0);
  expect_equal("gpt2", join(one, join(ring, gpt2)), 0);
  expect_equal("one-layer", join(one, join(grid, {"model.num_hidden_layers=1", "mesh.layout=contiguous"})), 0);
  expect_equal("frozen", join(one, join(grid, {"training.trainable=[\"*norm*\", \"*.1.mlp.*\"]"})), 0);
}

// Sums over micro-batches and over ranks meet in another order.
TEST_F(Sharding, OfSeveralMicroBatchesAgreesToRounding) {
  expect_equal("several", {"training.steps=3", "training.global_batch_size=8", "mesh.data=2", "mesh.sequence=2"},
               1e-12);
}

TEST_F(Sharding, MayChangeOnResumeAndSoMayTheMesh) {
  const std::vector<std::string> common{"training.steps=30", "training.global_batch_size=6"};
  run(tiny(data, common), "whole");
  const StartRequest resume{.resume = true, .resume_path = "", .init_from = ""};
  run(with(join(common, {"mesh.sequence=2"}), Shard::optimizer), "parts", {}, 10);
  run(with(join(common, {"mesh.data=2", "mesh.sequence=2"}), Shard::weights), "parts", resume, 20);
  run(with(join(common, {"mesh.sequence=3"}), Shard::gradients), "parts", resume);
  const auto reference = losses("whole"), found = losses("parts");
  ASSERT_EQ(found.size(), 30u);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], reference[i], 1e-9 * reference[i]);
  expect_same_state(state(checkpoint("parts", 30)), state(checkpoint("whole", 30)), "weights/", 1e-9);
}

TEST_F(Sharding, AllocatesWhatIsPlannedToTheByte) {
  for (const int ranks : {2, 3, 4, 8}) {
    for (const Shard shard : {Shard::gradients, Shard::weights}) {
      const std::string name = fmt::format("{}-{}", ranks, name_of(shard));
      SCOPED_TRACE(name);
      const Config config = with({"training.steps=1", fmt::format("mesh.sequence={}", ranks)}, shard);
      run(config, name);
      const auto peaks = metrics(name).at(0).at("peak_bytes");
      const ParameterTable table = make_parameter_table(config);
      for (const RankPlan& plan : plan_ranks(config, table, training_purpose(config))) {
        for (const int rank : plan.ranks) {
          for (int tag = 0; tag < tag_count; ++tag) {
            EXPECT_EQ(peaks[rank].at(name_of(static_cast<Tag>(tag))).get<std::size_t>(),
                      plan.peak[static_cast<Tag>(tag)]);
          }
        }
      }
    }
  }
}

TEST_F(Sharding, EvaluatesAndGeneratesTheSame) {
  run(with({"training.steps=2"}, Shard::optimizer), "run");
  EvaluationOptions options;
  options.checkpoint = checkpoint("run", 2);
  options.data = data;
  options.request = {{16, 40}, 8, 40};
  std::vector<double> values;
  // Two data ranks and an odd number of sequences: in the last round one rank has none.
  for (const auto& [data_ranks, sequence] : {std::pair{1, 1}, {1, 3}, {2, 2}}) {
    for (const bool shards : {false, true}) {
      options.mesh.data = data_ranks;
      options.mesh.sequence = sequence;
      options.shard_weights = shards;
      Launcher launcher;
      const EvaluationSummary summary = evaluate_checkpoint(options, launcher);
      values.push_back(summary.results.at(0).nll.value);
      if (shards) {
        EXPECT_EQ(values.back(), values[values.size() - 2]);
      }
    }
  }
  for (const double value : values) EXPECT_NEAR(value, values[0], 1e-12 * values[0]);

  std::vector<std::vector<std::int32_t>> texts;
  for (const Shard shard : {Shard::optimizer, Shard::weights}) {
    Config config = with({"mesh.sequence=3", "model.num_hidden_layers=3"}, shard);
    const GenerationRequest request{.prompt = {1, 2, 3, 4, 5, 6, 7}, .new_tokens = 9};
    const RankPurpose purpose{.training = false, .prompt_tokens = 7, .new_tokens = 9};
    const ParameterTable table = make_parameter_table(config.model);
    std::vector<std::int32_t> text;
    launch_threads({3, 60}, [&](Communicator& world) {
      ThreadPool pool(1);
      RankState rank(config, table, purpose, world.rank(), Device::cpu(), pool, &world);
      rank.model->initialise(3);
      generate(rank, request, [&](std::int32_t token) {
        text.push_back(token);
        return true;
      });
    });
    EXPECT_EQ(text.size(), 9u);
    texts.push_back(text);
  }
  EXPECT_EQ(texts[1], texts[0]);
}

class Freezing : public Sharding {};

TEST_F(Freezing, LeavesWhatIsFrozenAsItWasToTheBit) {
  const Config config = tiny(data, {"training.steps=4", "mesh.sequence=2", "checkpoint.interval=1", "checkpoint.keep=9",
                                    "training.trainable=[\"*.mlp.*\"]"});
  run(config, "run");
  const auto first = state(checkpoint("run", 1)), last = state(checkpoint("run", 4));
  std::size_t frozen = 0, moments = 0;
  for (const auto& [name, values] : last) {
    if (!name.starts_with("weights/")) {
      EXPECT_NE(name.find(".mlp."), std::string::npos) << name;  // no state for what is frozen
      ++moments;
    } else if (name.find(".mlp.") == std::string::npos) {
      EXPECT_EQ(values, first.at(name)) << name;
      ++frozen;
    } else {
      EXPECT_NE(values, first.at(name)) << name;
    }
  }
  EXPECT_GT(frozen, 0u);
  EXPECT_GT(moments, 0u);
}

TEST_F(Freezing, IsKeptOnResumeBitForBit) {
  const std::vector<std::string> frozen{"training.steps=6", "mesh.sequence=2", "training.trainable=[\"*.1.*\"]"};
  const StartRequest resume{.resume = true, .resume_path = "", .init_from = ""};
  run(tiny(data, frozen), "whole");
  run(tiny(data, frozen), "parts", {}, 3);
  run(tiny(data, frozen), "parts", resume);
  EXPECT_EQ(losses("parts"), losses("whole"));
  EXPECT_EQ(state(checkpoint("parts", 6)), state(checkpoint("whole", 6)));
  const std::string sentence = error_of(ExitCode::checkpoint, [&] {
    run(tiny(data, {"training.steps=9", "mesh.sequence=2", "training.trainable=[\"*\"]"}), "parts", resume);
  });
  EXPECT_NE(sentence.find("training.trainable"), std::string::npos) << sentence;
}

TEST_F(Freezing, APatternThatMeansNothingIsRefused) {
  const auto read = [&](const std::string& patterns) {
    const std::string text = to_yaml(tiny(data));
    return parse_config(text, "run.yaml", {"training.trainable=" + patterns}, ConfigUse::run, check_model);
  };
  const std::string sentence = error_of(ExitCode::usage, [&] { read("[\"*.mlp.*\", \"*.attention.*\"]"); });
  EXPECT_NE(sentence.find("\"*.attention.*\" is the name of no parameter"), std::string::npos) << sentence;
  error_of(ExitCode::usage, [&] { read("mlp"); });
}

}  // namespace
}  // namespace ringtrain::testing
