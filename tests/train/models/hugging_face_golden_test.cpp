// Tiny models of every class of transformers, with every kind of rotary scaling, tied and untied heads, windows, and
// biases: config.json as transformers saved it, and nll and gradients as transformers computed them in float64
// (tests/golden/make_hugging_face.py), on one rank and on a ring of 3. Also configs edited by hand: keys of
// transformers 4 together with those of 5, keys of other classes (make_edited_configs.py, with 5.24.0): the result of
// transformers for each is computed here, too, or the key is refused by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "layers/model_parameters.h"
#include "tests/layers/harness.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "train/models/hugging_face_config.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

constexpr double tolerance = 1e-9;

json golden_file(const std::string& name) {
  return json::parse(std::ifstream(source_folder() + "/tests/golden/" + name));
}

const json& all_cases() {
  static const json cases = golden_file("hugging_face.json");
  return cases;
}

/// Returns whole sequences whose every token has the next one for a label.
Sequences sequences_of(const json& rows) {
  Sequences sequences;
  sequences.B = std::ssize(rows);
  sequences.S = std::ssize(rows[0]) - 1;
  for (const json& row : rows) {
    for (std::int64_t i = 0; i < sequences.S; ++i) {
      sequences.tokens.push_back(row[i]);
      sequences.labels.push_back(row[static_cast<std::size_t>(i) + 1]);
      sequences.positions.push_back(static_cast<std::int32_t>(i));
      sequences.documents.push_back(0);
      sequences.weights.push_back(1);
    }
  }
  return sequences;
}

void expect_gradients(const ModelConfig& model, const RunOptions& options, const Sequences& sequences,
                      const json& gradients) {
  const RunResult result = run_training(model, options, sequences, static_cast<double>(sequences.B * sequences.S));
  const ParameterTable table = make_parameter_table(model);
  ASSERT_EQ(table.all().size(), gradients.size());
  const ModelSpec spec = model_spec(model);
  for (std::size_t id = 0; id < gradients.size(); ++id) {
    const Parameter& parameter = table.all()[id];
    ASSERT_EQ(parameter.name, gradients[id]["name"].get<std::string>());
    const auto begin = result.gradients.begin() + parameter.offset;
    const std::vector<double> gradient(begin, begin + parameter.shape.numel());
    const auto layer = static_cast<std::size_t>(parameter.bucket - 1);  // of parameters in a layer
    if (parameter.name.ends_with("k_proj.bias") &&
        !spec.layers[layer].rope) {  // 0, and both sides are rounding: see golden_test.cpp
      for (const double g : gradient) EXPECT_LE(std::abs(g), 1e-14) << parameter.name;
    } else {
      EXPECT_LE(relative_difference(gradient, gradients[id]["values"].get<std::vector<double>>()), tolerance)
          << parameter.name;
    }
  }
}

class HuggingFaceGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(HuggingFaceGolden, NllAndGradientsEqualTransformers) {
  int cases = 0;
  for (const json& golden : all_cases()) {
    const std::string name = golden["name"];
    if (!name.starts_with(std::string(GetParam()) + "_")) continue;
    ++cases;
    const ModelConfig model = parse_hugging_face_config(golden["config"].dump(), name).model;
    const Sequences sequences = sequences_of(golden["tokens"]);
    const auto nll = golden["nll"].get<std::vector<double>>();
    for (const int ranks : {1, 3}) {
      SCOPED_TRACE(name + " on a ring of " + std::to_string(ranks));
      RunOptions options;
      options.ranks = ranks;
      options.layout = Layout::zigzag;
      EXPECT_LE(relative_difference(run_evaluation(model, options, sequences).nll, nll), tolerance);
      if (!golden["gradients"].empty()) expect_gradients(model, options, sequences, golden["gradients"]);
    }
  }
  EXPECT_GE(cases, 3);
}

/// Reading back a written config changes nothing, so a written config describes the model that transformers computed.
TEST_P(HuggingFaceGolden, ConfigsAreWrittenAsTheyWereRead) {
  for (const json& golden : all_cases()) {
    const std::string name = golden["name"];
    if (!name.starts_with(std::string(GetParam()) + "_")) continue;
    const ModelConfig model = parse_hugging_face_config(golden["config"].dump(), name).model;
    const json written =
        json::parse(write_hugging_face_config(model, {.dtype = "float64", .context_length = 0, .ends = {1, {2}}}));
    for (const auto& [key, value] : golden["config"].items()) {
      if (key == "rope_parameters" || key == "max_window_layers" || key.ends_with("_pdrop")) continue;
      // Our file may give values that theirs leaves to defaults, but no other values.
      if (written.contains(key)) {
        EXPECT_EQ(written[key], value) << name << " " << key;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Classes, HuggingFaceGolden,
                         ::testing::Values("llama", "mistral", "qwen2", "qwen3", "smollm3", "olmo2", "olmo3", "gemma2",
                                           "gemma3_text", "phi3", "granite", "gpt2"),
                         [](const auto& test) { return std::string(test.param); });

/// The messages about some edits are in hugging_face_keys.json: a message that refuses them, or a log.
TEST(EditedConfigs, AreReadAsTransformersReadsThemOrRefused) {
  const json said =
      json::parse(std::ifstream(source_folder() + "/tests/train/models/hugging_face_keys.json"))["edited"];
  ASSERT_EQ(said.size(), 15U);
  std::size_t found = 0;
  for (const json& edit : golden_file("edited_configs.json")) {
    const std::string name = edit["name"], prefix = "DIR/config.json: ";
    SCOPED_TRACE(name);
    const auto known = std::ranges::find_if(said, [&](const json& row) { return row["name"] == name; });
    const json row = known == said.end() ? json::object() : *known;
    found += known == said.end() ? 0 : 1;
    const json& model = *std::ranges::find_if(all_cases(), [&](const json& one) { return one["name"] == edit["of"]; });
    json content = model["config"];
    content.merge_patch(edit["patch"]);
    const auto read = [&] { return parse_hugging_face_config(content.dump(), "DIR/config.json"); };
    if (row.contains("sentence")) {
      EXPECT_EQ(error_of(ExitCode::checkpoint, read), prefix + row["sentence"].get<std::string>());
      continue;
    }
    const HuggingFaceConfig config = read();
    const std::string log = row.value("log", "");
    EXPECT_EQ(config.logs, log.empty() ? std::vector<std::string>{} : std::vector{prefix + log});
    const std::vector<double> nll = run_evaluation(config.model, RunOptions{}, sequences_of(model["tokens"])).nll;
    const double mean = std::accumulate(nll.begin(), nll.end(), 0.0) / static_cast<double>(nll.size());
    EXPECT_NEAR(mean / edit["nll"].get<double>(), 1, 1e-12);
  }
  EXPECT_EQ(found, said.size());
}

}  // namespace
}  // namespace ringtrain::testing
