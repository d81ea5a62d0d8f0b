// Whole runs that shard their gradients or weights, and runs that freeze a part of the model: the numbers of a run that
// does neither, checkpoints from which all of them can continue, planned memory.

#include "framework/config/read_config.h"
#include "layers/check_model.h"
#include "layers/model_parameters.h"
#include "tests/train/train_fixture.h"
#include "train/engine/rank_state.h"
#include "train/generation/generator.h"

namespace ringtrain::testing {
namespace {

class Sharding : public SplitTextTest {
 protected:
  Config with(std::vector<std::string> settings, Shard shard) const {
    settings.push_back(fmt::format("training.shard={}", name_of(shard)));
    return tiny(data, settings);
  }
  /// Trains with each policy, and compares bits (tolerance 0) or numbers with the run that only shards the optimizer.
  void expect_equal(const std::string& name, const std::vector<std::string>& settings, double tolerance) {
    SCOPED_TRACE(name);
    run(with(settings, Shard::optimizer), name);
    ASSERT_GE(last_step(name), 3);
    for (const Shard shard : {Shard::gradients, Shard::weights}) {
      SCOPED_TRACE(name_of(shard));
      const std::string sharded = fmt::format("{}-{}", name, name_of(shard));
      run(with(settings, shard), sharded);
      if (tolerance == 0) {
        expect_same_bits(sharded, name);
        EXPECT_EQ(numbers(sharded, "grad_norm"), numbers(name, "grad_norm"));
      } else {
        expect_same_numbers(sharded, name, tolerance);
      }
    }
  }
};

const std::vector<std::string> gpt2{"model.architecture=gpt2", "model.num_key_value_heads=4",
                                    "model.max_position_embeddings=37"};

TEST_F(Sharding, ChangesNoBitOfAStepOfOneMicroBatch) {
  const std::vector<std::string> one{"training.steps=3", "training.global_batch_size=4"};
  const std::vector<std::string> ring{"mesh.sequence=3", "mesh.layout=striped", "training.micro_batch_size=4"};
  const std::vector<std::string> grid{"mesh.data=2", "mesh.sequence=2", "training.micro_batch_size=2"};
  expect_equal("ring", joined(one, ring), 0);
  expect_equal("grid", joined(one, joined(grid, {"training.dtype=float32", "training.recompute=full"})), 0);
  expect_equal("untied", joined(one, joined(grid, {"model.tie_word_embeddings=false", "model.num_hidden_layers=5"})),
               0);
  expect_equal("gpt2", joined(one, joined(ring, gpt2)), 0);
  expect_equal("one-layer", joined(one, joined(grid, {"model.num_hidden_layers=1", "mesh.layout=contiguous"})), 0);
  expect_equal("frozen", joined(one, joined(grid, {"training.trainable=[\"*norm*\", \"*.1.mlp.*\"]"})), 0);
}

// The store then holds the weights in float32, and not the optimizer.
TEST_F(Sharding, OfMasterWeightsChangesNoBit) {
  const std::vector<std::string> bfloat16{"training.steps=3", "training.dtype=bfloat16"};
  expect_equal("one rank", bfloat16, 0);
  expect_equal("frozen", joined(bfloat16, {"training.trainable=[\"*norm*\", \"*.1.mlp.*\"]"}), 0);
  expect_equal("grid",
               joined(bfloat16, {"training.global_batch_size=4", "training.micro_batch_size=2", "mesh.data=2",
                                 "mesh.sequence=2"}),
               0);
}

TEST_F(Sharding, OfGradientsInBFloat16ComputesTheSameWithAnyShardAndMesh) {
  const std::vector<std::string> narrow{"training.steps=3", "training.global_batch_size=2",
                                        "optimizer.gradients=bfloat16"};
  for (const char* const dtype : {"float32", "bfloat16"}) {
    SCOPED_TRACE(dtype);
    const std::vector<std::string> settings = joined(narrow, {fmt::format("training.dtype={}", dtype)});
    expect_equal(fmt::format("{} one rank", dtype), settings, 0);
    expect_equal(fmt::format("{} ring", dtype), joined(settings, {"mesh.sequence=3"}), 0);
    run(tiny(data, joined(settings, {"optimizer.gradients=float32"})), fmt::format("{} wide", dtype));
    expect_close(losses(fmt::format("{} one rank", dtype)), losses(fmt::format("{} wide", dtype)), 0.01);
    EXPECT_NE(losses(fmt::format("{} one rank", dtype)), losses(fmt::format("{} wide", dtype)));
  }
}

// Sums over micro-batches and over ranks are added in another order.
TEST_F(Sharding, OfSeveralMicroBatchesAgreesToRounding) {
  expect_equal("several", {"training.steps=3", "training.global_batch_size=8", "mesh.data=2", "mesh.sequence=2"},
               1e-12);
}

TEST_F(Sharding, MayChangeOnResumeAndSoMayTheMesh) {
  const std::vector<std::string> common{"training.steps=30", "training.global_batch_size=6"};
  run(tiny(data, common), "whole");
  run(with(joined(common, {"mesh.sequence=2"}), Shard::optimizer), "parts", {}, 10);
  run(with(joined(common, {"mesh.data=2", "mesh.sequence=2"}), Shard::weights), "parts", resumed(), 20);
  run(with(joined(common, {"mesh.sequence=3"}), Shard::gradients), "parts", resumed());
  EXPECT_EQ(last_step("whole"), 30);
  expect_same_numbers("parts", "whole");
}

TEST_F(Sharding, AllocatesWhatIsPlannedToTheByte) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::weights}) {
      const std::string name = fmt::format("{}-{}", ranks, name_of(shard));
      SCOPED_TRACE(name);
      const Config config = with({"training.steps=1", fmt::format("mesh.sequence={}", ranks)}, shard);
      run(config, name);
      expect_planned_peaks(name, config);
      const std::vector<std::string> narrow{"training.dtype=bfloat16", "optimizer.gradients=bfloat16"};
      const Config less = with(joined(narrow, {"training.steps=1", fmt::format("mesh.sequence={}", ranks)}), shard);
      run(less, name + " narrow");
      expect_planned_peaks(name + " narrow", less);
    }
  }
}

TEST_F(Sharding, EvaluatesAndGeneratesTheSame) {
  run(with({"training.steps=2"}, Shard::optimizer), "run");
  EvaluationOptions options = evaluation_of("run", data, {{16, 40}, 8, 40});
  std::vector<double> values;
  // Two data ranks and an odd number of sequences: in the last round, one rank has none.
  for (const auto& [data_ranks, sequence] : {std::pair{1, 1}, {1, 3}, {2, 2}}) {
    for (const bool shards : {false, true}) {
      options.mesh.data = data_ranks;
      options.mesh.sequence = sequence;
      options.shard_weights = shards;
      const EvaluationSummary summary = evaluate_on_threads(options);
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
      initialize_weights(rank.stream, rank.parameters, 3);
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
      EXPECT_TRUE(holds(name, ".mlp."));  // no state for frozen parameters
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
  expect_resumes(tiny(data, frozen), {3});
  expect_error_holding(ExitCode::checkpoint, {"training.trainable"}, [&] {
    run(tiny(data, {"training.steps=9", "mesh.sequence=2", "training.trainable=[\"*\"]"}), "parts", resumed());
  });
}

TEST_F(Freezing, APatternThatMeansNothingIsRefused) {
  const auto read = [&](const std::string& patterns) {
    const std::string text = to_yaml(tiny(data));
    return parse_config(text, "run.yaml", {"training.trainable=" + patterns}, ConfigUse::run, check_model);
  };
  expect_error_holding(ExitCode::usage, {"\"*.attention.*\" matches no parameter"},
                       [&] { read("[\"*.mlp.*\", \"*.attention.*\"]"); });
  error_of(ExitCode::usage, [&] { read("mlp"); });
}

}  // namespace
}  // namespace ringtrain::testing
