// A real model: SmolLM2-135M as tests/models/make_smollm2.py makes it, against a NumPy model in float64 that shares
// nothing with this program. Skipped where the folder is not there.
#include <nlohmann/json.hpp>

#include "data/token_file_writer.h"
#include "framework/threads.h"
#include "layers/model_parameters.h"
#include "parallel/launch/launch.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/evaluation/evaluator.h"
#include "train/models/load_weights.h"

namespace ringtrain::testing {
namespace {

constexpr double expected_nll = 2.95901002;  // of tokens 1 to 1,023 of the GPL-3, given those before them

class SmolLM2 : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    if (!path_exists(model("gpl3.json"))) {
      GTEST_SKIP() << model("gpl3.json")
                   << " is not there; tests/models/make_smollm2.py makes it from a package on PyPI";
    }
  }
  static std::string model(const std::string& name) { return source_folder() + "/build/models/smollm2/" + name; }

  double nll(const std::string& path, DType dtype, std::int64_t ring, Layout layout) {
    const std::int64_t length = 1023;
    std::vector<std::int32_t> tokens = nlohmann::json::parse(content_of(model("gpl3.json")))["tokens"];
    tokens.resize(length + 1);
    if (!path_exists(at("gpl3.h5"))) {
      TokenFilePlan plan;
      plan.vocab_size = 49152;
      plan.tokens = length + 2;
      plan.documents = plan.first_validation_document = 1;
      TokenFileWriter writer(at("gpl3.h5"), plan);
      writer.append(tokens);
      writer.end_document();
      writer.finish();
    }
    const auto file = TokenFile::open(at("gpl3.h5"));
    const ModelSource source = open_model(path);
    Config config;
    config.model = source.model;
    config.training.dtype = dtype;
    config.mesh.sequence = ring;
    config.mesh.layout = layout;
    const EvaluationRequest request{{length}, length, 1};
    EvaluationTargets targets;
    targets.blocks = {{0, length}};
    targets.documents = 1;
    const RankPurpose purpose{.training = false, .evaluation_lengths = request.context_lengths};
    const ParameterTable table = make_parameter_table(config.model);
    double value = 0;
    launch_threads({static_cast<int>(ring), 600}, [&](Communicator& world) {
      ThreadPool pool(1);
      RankState state(config, table, purpose, world.rank(), Device::cpu(), pool, &world);
      load_weights(state, source);
      const auto results = evaluate_targets(state, *file, request, targets, nullptr, nullptr).value();
      if (world.rank() == 0) value = results[0].nll.value;
    });
    return value;
  }
};

TEST_F(SmolLM2, WhatIsMadeOfTheGgufFileGivesTheReferencesNllInBothPrecisions) {
  ASSERT_EQ(run_child("gguf", {"--input", model("model.gguf"), "--output", "converted"}, folder).code, 0);
  EXPECT_NEAR(nll(at("converted"), DType::float64, 1, Layout::zigzag), expected_nll, 1e-6);
  EXPECT_NEAR(nll(at("converted"), DType::float32, 1, Layout::zigzag), expected_nll, 2e-5);
}

TEST_F(SmolLM2, TheFolderGivesTheSameOnEveryRingAndLayout) {
  const double one = nll(model("hugging_face"), DType::float64, 1, Layout::contiguous);
  EXPECT_NEAR(one, expected_nll, 1e-6);
  for (const auto& [ring, layout] :
       {std::pair{2, Layout::contiguous}, {2, Layout::zigzag}, {4, Layout::striped}, {4, Layout::zigzag}}) {
    EXPECT_NEAR(nll(model("hugging_face"), DType::float64, ring, layout), one, 1e-9) << ring;
  }
}

}  // namespace
}  // namespace ringtrain::testing
