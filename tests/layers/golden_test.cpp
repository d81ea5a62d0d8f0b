// The external reference: compares loss, nll of every token, and every gradient with PyTorch's numbers in double
// (tests/golden/make_golden.py), on one rank and on rings of 2 and 3 with each layout.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/model_parameters.h"
#include "tests/layers/golden.h"

namespace ringtrain::testing {
namespace {

constexpr double tolerance = 1e-9;

struct Mesh {
  int ranks;
  Layout layout;
};

class GoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, ParametersHaveTheNamesAndShapesOfTheOtherImplementation) {
  const Golden golden = read_golden(GetParam());
  const ParameterTable table = make_parameter_table(golden.config);
  ASSERT_EQ(table.all().size(), golden.parameters.size());
  for (std::size_t id = 0; id < golden.parameters.size(); ++id) {
    const Parameter& parameter = table.all()[id];
    EXPECT_EQ(parameter.name, golden.parameters[id].name);
    std::vector<std::int64_t> shape;
    for (int dim = 0; dim < parameter.shape.rank(); ++dim) shape.push_back(parameter.shape[dim]);
    EXPECT_EQ(shape, golden.parameters[id].shape) << parameter.name;
  }
}

TEST_P(GoldenTest, LossAndEveryGradientEqualPyTorch) {
  const Golden golden = read_golden(GetParam());
  const ParameterTable table = make_parameter_table(golden.config);
  const bool rotates = model_spec(golden.config).positions == Positions::rope;
  EXPECT_DOUBLE_EQ(golden.sequences.denominator(), golden.denominator);
  std::vector<Mesh> meshes{{1, Layout::contiguous}};
  for (const int ranks : {2, 3}) {
    for (const Layout layout : all_layouts) meshes.push_back({ranks, layout});
  }
  for (const Mesh mesh : meshes) {
    SCOPED_TRACE(std::string("ring of ") + std::to_string(mesh.ranks) + " " + name_of(mesh.layout));
    const RunOptions options{.ranks = mesh.ranks, .layout = mesh.layout, .recompute = Recompute::full};
    const RunResult result = run_training(golden.config, options, golden.sequences, golden.denominator);
    EXPECT_NEAR(result.loss_sum / golden.loss_sum, 1.0, tolerance);
    for (std::size_t id = 0; id < golden.parameters.size(); ++id) {
      const auto begin = result.gradients.begin() + table.all()[id].offset;
      const std::vector<double> gradient(begin, begin + table.all()[id].shape.numel());
      if (table.all()[id].name.ends_with("k_proj.bias") && !rotates) {
        // It shifts all scores of a query equally, which softmax ignores: the gradient is 0, and both sides are
        // rounding.
        for (double g : gradient) EXPECT_LE(std::abs(g), 1e-14) << table.all()[id].name;
      } else {
        EXPECT_LE(relative_difference(gradient, golden.parameters[id].gradient), tolerance) << table.all()[id].name;
      }
    }
    EXPECT_LE(relative_difference(run_evaluation(golden.config, options, golden.sequences).nll, golden.nll), tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, ::testing::ValuesIn(golden_models),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ringtrain::testing
