// A custom model (examples/model/gate.h): its gradients compared with finite differences; every mesh and sharding
// policy compared with one rank; resume, evaluation, and dumps on other meshes; its planned memory; generation; and the
// refusal of its checkpoints by the transformer, and vice versa.
#include <algorithm>
#include <sstream>

#include "data/loader.h"
#include "examples/model/gate.h"
#include "framework/checks/gradient_check.h"
#include "tests/layers/harness.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/models/load_weights.h"

namespace ringtrain::testing {
namespace {

class OwnModel : public SplitTextTest {
 protected:
  TrainOptions options_of(const std::vector<std::string>& settings, const std::string& output) const {
    return {.config = tiny(data, settings), .output = at(output), .model = gated_model()};
  }
  void train_own(const std::vector<std::string>& settings, const std::string& output, bool resume = false,
                 std::int64_t stop_after = 0) {
    TrainOptions options = options_of(settings, output);
    options.start.resume = resume;
    options.stop_after = stop_after;
    EXPECT_EQ(run_with(options).code, ExitCode::done);
  }
  double perplexity(std::int64_t data_ranks, std::int64_t sequence_ranks) {
    EvaluationOptions options = evaluation_of("one", data, {{16, 32}, 8});
    options.model = gated_model();
    options.mesh.data = data_ranks;
    options.mesh.sequence = sequence_ranks;
    return evaluate_on_threads(options).results.back().perplexity;
  }
};

/// Expects the gradients of all parameters to equal finite differences to 1e-6: for all elements of the gate's own
/// parameters, and for so many of the others.
void expect_gradients(const ModelConfig& config, Recompute recompute, std::int64_t most) {
  const ModelDefinition definition = gated_model();
  const Sequences sequences = random_sequences(config, 2, 11, /*documents=*/true, 3);
  launch_threads({.ranks = 1, .timeout_seconds = 60}, [&](Communicator& world) {
    Config whole;
    whole.model = config;
    const RunOptions options{.recompute = recompute};
    const ExecutionShape shape = shape_of(options, sequences, 0);
    const ParameterTable table = definition.table(config);
    ThreadPool pool(1);
    Allocator allocator(Device::cpu());
    ComputeDevice compute(allocator, pool, nullptr);
    Stream& stream = compute.stream();
    ParameterStore parameters(allocator, table, stream, {.dtype = DType::float64, .gradients = true});
    Batch batch(allocator.host(), sequences.B, sequences.S, DType::float64);
    const auto model = definition.make({whole, shape, allocator, parameters, stream, &world});
    set_test_weights(stream, parameters);
    parameters.begin_step();
    cut(batch, sequences, Layout::contiguous, 1, 0);
    const double denominator = sequences.denominator();
    model->train_step(batch, denominator, true);
    parameters.finish_step();
    model->forget_loss_sum();
    for (int id = 0; id < static_cast<int>(table.all().size()); ++id) {
      const std::int64_t elements = table[id].shape.numel();
      const bool own = table[id].name.starts_with("model.gate");
      const GradientCheck check = check_gradient(
          [&] {
            model->evaluate(batch, {});
            return model->take_loss_sum() / denominator;
          },
          parameters.weight(id), parameters.gradient(id), {.most = own ? 0 : most});
      EXPECT_LT(check.error, 1e-6) << table[id].name << " element " << check.element;
      EXPECT_EQ(check.looked_at, own ? elements : std::min(most, elements)) << table[id].name;
    }
  });
}

TEST_F(OwnModel, GradientsAreThoseOfFiniteDifferences) {
  for (const Recompute recompute : {Recompute::none, Recompute::keep_attention, Recompute::full}) {
    SCOPED_TRACE(name_of(recompute));
    expect_gradients(small_llama(), recompute, 8);
  }
}

TEST_F(OwnModel, GradientsOfEveryArchitectureGoThroughIt) {
  for (const Architecture architecture : all_architectures) {
    SCOPED_TRACE(name_of(architecture));
    expect_gradients(small_model(architecture), Recompute::none, 2);
  }
}

TEST_F(OwnModel, MeshesAndShardingGiveOneRanksRun) {
  train_own({}, "reference");
  EXPECT_LT(losses("reference").back(), 0.95 * losses("reference").front()) << "nothing was learnt";
  for (const char* shard : {"optimizer", "gradients", "weights"}) {
    const std::string policy = std::string("training.shard=") + shard;
    train_own({"mesh.data=2", "mesh.sequence=2", policy}, shard);
    expect_same_numbers(shard, "reference");
  }
}

TEST_F(OwnModel, ResumesAndEvaluatesOnOtherMeshes) {
  train_own({}, "reference");
  train_own({"mesh.data=2", "mesh.sequence=2"}, "one", false, 12);
  train_own({"mesh.data=1", "mesh.sequence=3", "training.recompute=full"}, "one", true);
  expect_same_numbers("one", "reference");
  const double single = perplexity(1, 1);
  for (const auto& [dp, sp] : {std::pair{2, 2}, {1, 3}}) EXPECT_NEAR(perplexity(dp, sp), single, 1e-9 * single);
}

TEST_F(OwnModel, AllocatesWhatIsPlanned) {
  const Config config = tiny(data, {"mesh.data=2", "mesh.sequence=2"});
  train_own({"mesh.data=2", "mesh.sequence=2", "training.steps=1"}, "run");
  const auto peaks = metrics("run").front().at("peak_bytes");
  const ModelDefinition own = gated_model();
  const auto plans = plan_ranks(config, own.table(config), training_purpose(config), own);
  const auto without = plan_ranks(config, transformer_definition().table(config), training_purpose(config));
  for (const RankPlan& plan : plans) {
    for (const int rank : plan.ranks) EXPECT_EQ(peaks.at(rank).at("total"), plan.peak.total);
  }
  EXPECT_GT(plans.front().peak.total, without.front().peak.total);
}

TEST_F(OwnModel, ADumpIsTheSameOnEveryMesh) {
  const auto dumped = [&](const std::string& name, const std::vector<std::string>& settings) {
    TrainOptions options = options_of(settings, name);
    options.dump = {.folder = at(name) + ".dump", .step = 2};
    EXPECT_EQ(run_with(options).code, ExitCode::done);
  };
  dumped("one", {"training.steps=2"});
  const DumpReader one(at("one.dump"));
  dumped("four", {"training.steps=2", "mesh.data=2", "mesh.sequence=2"});
  for (const char* const name :
       {"layer.0.inserted_output", "grad.layer.0.inserted_output", "model.gate.weight", "grad.model.gate_up.weight"}) {
    EXPECT_NE(one.find(name), nullptr) << name;
  }
  EXPECT_EQ(one.find("layer.1.inserted_output"), nullptr);
  expect_dumps_agree(at("four.dump"), at("one.dump"));
}

// Compares each greedy token with forward passes without a cache; rings give the same text.
TEST_F(OwnModel, Generates) {
  train_own({"training.steps=6", "optimizer.lr=0.05"}, "run");
  const auto generated = [&](std::int64_t ranks) {
    GenerationOptions options;
    options.model = gated_model();
    options.checkpoint = at("run");
    options.tokens = {3, 1, 4, 1, 5};
    options.max_new_tokens = 12;
    options.sampling.temperature = 0;
    options.sequence_ranks = ranks;
    return generated_text(options);
  };
  const std::string text = generated(1);
  EXPECT_EQ(generated(3), text);
  std::vector<std::int32_t> tokens{3, 1, 4, 1, 5};
  std::istringstream words(text);
  for (std::int32_t token = 0; words >> token; words.ignore(1)) tokens.push_back(token);
  ASSERT_EQ(tokens.size(), 17u) << text;
  const Config config = tiny(data);
  const ModelDefinition own = gated_model();
  const ParameterTable table = own.table(config);
  const ModelSource source = open_model(at("run"), own);
  launch_threads({.ranks = 1, .timeout_seconds = 60}, [&](Communicator& world) {
    ThreadPool pool(1);
    RankState state(config, table, {.training = false, .evaluation_lengths = {17}}, 0, Device::cpu(), pool, &world,
                    nullptr, own);
    load_weights(state, &source);
    std::vector<std::vector<double>> nll;  // of each token after each prefix
    for (std::int32_t token = 0; token < 23; ++token) {
      load_sequence(state.batch, tokens, state.shard);
      std::fill_n(state.batch.labels().as<std::int32_t>(), 17, token);
      const TensorView values = state.evaluation_nll.view().prefix({1, 17});
      state.model->evaluate(state.batch, values);
      nll.emplace_back(values.as<double>(), values.as<double>() + 17);
    }
    for (std::size_t t = 4; t < 16; ++t) {
      for (const std::vector<double>& other : nll) EXPECT_LE(nll[tokens[t + 1]][t], other[t] + 1e-9) << t;
    }
  });
}

TEST_F(OwnModel, AndTheTransformerRefuseEachOthersCheckpoints) {
  train_own({"training.steps=2"}, "own");
  run(tiny(data, {"training.steps=2"}), "built-in");
  const auto refused = [&](const std::function<void()>& body) { return error_of(ExitCode::checkpoint, body); };
  const std::string own = refused([&] { open_model(at("own")); });
  EXPECT_TRUE(holds(own, "holds the custom model \"gated\", but this program reads ringtrain's own transformer"));
  EXPECT_EQ(own.find('\n'), std::string::npos);
  EXPECT_TRUE(holds(refused([&] { run(tiny(data, {"training.steps=4"}), "own", resumed()); }), "\"gated\""));
  EXPECT_TRUE(holds(refused([&] { open_model(at("built-in"), gated_model()); }), "holds ringtrain's own transformer"));
  refused([&] { train_own({"training.steps=4"}, "built-in", true); });
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"export", "--checkpoint", "own", "--output", "folder"},
        {"evaluate", "--checkpoint", "own", "--data", "text.h5", "--context-lengths", "16"},
        {"generate", "--checkpoint", "own", "--tokens", "1", "2"}}) {
    const ChildResult result = run_command(command, folder);
    EXPECT_EQ(result.code, 4) << command[0] << ": " << result.err;
    EXPECT_TRUE(holds(result.err, "holds the custom model \"gated\", but this program reads ringtrain's own"));
  }
}

}  // namespace
}  // namespace ringtrain::testing
