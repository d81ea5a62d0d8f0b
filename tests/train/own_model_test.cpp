// A model of a program's own (examples/model/gate.h): its gradients against finite differences; every mesh and policy
// of sharding against one rank; resume and evaluation on other meshes; its memory as planned; and the refusal of its
// checkpoints by the transformer, and of the transformer's by it.
#include <algorithm>

#include "examples/model/gate.h"
#include "framework/checks/gradient_check.h"
#include "tests/layers/harness.h"
#include "tests/train/train_fixture.h"
#include "train/evaluation/checkpoint_evaluation.h"

namespace ringtrain::testing {
namespace {

class OwnModel : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    data = write_split_tokens();
  }
  void train_own(const std::vector<std::string>& settings, const std::string& output, bool resume = false,
                 std::int64_t stop_after = 0) {
    TrainOptions options;
    options.model = gated_model();
    options.config = tiny(data, settings);
    options.output = at(output);
    options.start.resume = resume;
    options.stop_after = stop_after;
    const Log log = [](const std::string&) {};
    EXPECT_EQ(train(prepare_run(options, log), log), ExitCode::done);
  }
  void expect_same_run(const std::string& found, const std::string& reference) {
    const auto a = losses(found), b = losses(reference);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-9 * b[i]) << found << " step " << i + 1;
    expect_same_state(state(checkpoint(found, 30)), state(checkpoint(reference, 30)), "weights/", 1e-9);
  }
  double perplexity(std::int64_t data_ranks, std::int64_t sequence_ranks) {
    EvaluationOptions options;
    options.model = gated_model();
    options.checkpoint = at("one");
    options.data = data;
    options.mesh.data = data_ranks;
    options.mesh.sequence = sequence_ranks;
    options.request.context_lengths = {16, 32};
    options.request.target_tokens = 8;
    Launcher launcher;
    return evaluate_checkpoint(options, launcher).results.back().perplexity;
  }
  std::string data;
};

TEST_F(OwnModel, GradientsAreThoseOfFiniteDifferences) {
  const ModelConfig config = small_llama();
  const ModelSpec spec = model_spec(config);
  const ModelDefinition definition = gated_model();
  const Sequences sequences = random_sequences(config, 2, 11, /*documents=*/true, 3);
  for (const Recompute recompute : {Recompute::none, Recompute::keep_attention, Recompute::full}) {
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
        const bool own = table[id].name.starts_with("model.gate");
        const GradientCheck check = check_gradient(
            [&] {
              model->evaluate(batch, {});
              return model->take_loss_sum() / denominator;
            },
            parameters.weight(id), parameters.gradient(id), {.most = own ? 0 : 8});
        EXPECT_LT(check.error, 1e-6) << table[id].name << " element " << check.element;
        const std::int64_t elements = table[id].shape.numel();
        EXPECT_EQ(check.looked_at, own ? elements : std::min<std::int64_t>(8, elements)) << table[id].name;
      }
    });
  }
}

TEST_F(OwnModel, MeshesAndShardingGiveOneRanksRun) {
  train_own({}, "reference");
  EXPECT_LT(losses("reference").back(), 0.95 * losses("reference").front()) << "nothing was learnt";
  for (const char* shard : {"optimizer", "gradients", "weights"}) {
    const std::string policy = std::string("training.shard=") + shard;
    train_own({"mesh.data=2", "mesh.sequence=2", policy}, shard);
    expect_same_run(shard, "reference");
  }
}

TEST_F(OwnModel, ResumesAndEvaluatesOnOtherMeshes) {
  train_own({}, "reference");
  train_own({"mesh.data=2", "mesh.sequence=2"}, "one", false, 12);
  train_own({"mesh.data=1", "mesh.sequence=3", "training.recompute=full"}, "one", true);
  expect_same_run("one", "reference");
  const double alone = perplexity(1, 1);
  for (const auto& [dp, sp] : {std::pair{2, 2}, {1, 3}}) EXPECT_NEAR(perplexity(dp, sp), alone, 1e-9 * alone);
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

TEST_F(OwnModel, AndTheTransformerRefuseEachOthersCheckpoints) {
  train_own({"training.steps=2"}, "own");
  run(tiny(data, {"training.steps=2"}), "built-in");
  const auto refused = [&](const std::function<void()>& body) { return error_of(ExitCode::checkpoint, body); };
  const std::string own = refused([&] { open_model(at("own")); });
  EXPECT_NE(own.find("holds the model \"gated\" of a program of its own"), std::string::npos) << own;
  EXPECT_EQ(own.find('\n'), std::string::npos);
  StartRequest resume;
  resume.resume = true;
  EXPECT_NE(refused([&] { run(tiny(data, {"training.steps=4"}), "own", resume); }).find("\"gated\""),
            std::string::npos);
  const std::string other = refused([&] { open_model(at("built-in"), gated_model()); });
  EXPECT_NE(other.find("holds ringtrain's own transformer"), std::string::npos) << other;
  refused([&] { train_own({"training.steps=4"}, "built-in", true); });
}

TEST_F(OwnModel, WrongDefinitionsAreNamed) {
  const auto refused = [&](const std::function<void()>& body) { return error_of(ExitCode::usage, body); };
  EXPECT_NE(refused([] { transformer_with("", {}); }).find("no name"), std::string::npos);
  EXPECT_NE(refused([] {
              transformer_with("transformer", [](const ModelSpec&) { return std::vector<LayerInsertion>{}; });
            }).find("another name"),
            std::string::npos);
  const auto table_with = [](LayerInsertion layer) {
    transformer_with("wrong", [layer](const ModelSpec&) { return std::vector{layer}; }).table(small_llama());
  };
  EXPECT_NE(refused([&] { table_with({.behind = 3}); }).find("behind block 3"), std::string::npos);
  EXPECT_NE(refused([&] {
              table_with({.parameters = {{.name = "model.norm.weight", .shape = {2}}}});
            }).find("one of that name already"),
            std::string::npos);
}

}  // namespace
}  // namespace ringtrain::testing
