// Configs that people edit by hand: keys of transformers 4 beside those of 5, keys of other classes. What transformers
// computes from each, in float64, is in tests/golden/edited_configs.json (made by make_edited_configs.py with 5.24.0):
// it is computed here, too, or the key is refused by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "framework/error.h"
#include "tests/layers/harness.h"
#include "tests/support/paths.h"
#include "train/models/hugging_face_config.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

json golden(const std::string& name) {
  return json::parse(std::ifstream(source_folder() + "/tests/golden/" + name));
}

/// Returns the entry of a name.
const json& named(const json& entries, const std::string& name) {
  return *std::ranges::find_if(entries, [&](const json& entry) { return entry["name"] == name; });
}

struct Edit {
  const char* name;
  const char* refusal;  // "": computed as transformers does
  const char* log = "";
};

class EditedConfigs : public ::testing::TestWithParam<Edit> {};

TEST_P(EditedConfigs, AreReadAsTransformersReadsThemOrRefused) {
  static const json models = golden("hugging_face.json"), edits = golden("edited_configs.json");
  const json& edit = named(edits, GetParam().name);
  const json& model = named(models, edit["of"]);
  json content = model["config"];
  content.merge_patch(edit["patch"]);
  HuggingFaceConfig config;
  try {
    config = parse_hugging_face_config(content.dump(), "DIR/config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    EXPECT_EQ(error.what(), std::string("DIR/config.json: ") + GetParam().refusal);
    return;
  }
  EXPECT_STREQ(GetParam().refusal, "");
  const std::string log = GetParam().log;
  EXPECT_EQ(config.logs, log.empty() ? std::vector<std::string>{} : std::vector{"DIR/config.json: " + log});
  const auto rows = model["tokens"].get<std::vector<std::vector<std::int32_t>>>();
  Sequences sequences;
  sequences.B = std::ssize(rows);
  sequences.S = std::ssize(rows[0]) - 1;
  for (const std::vector<std::int32_t>& row : rows) {
    sequences.tokens.insert(sequences.tokens.end(), row.begin(), row.end() - 1);
    sequences.labels.insert(sequences.labels.end(), row.begin() + 1, row.end());
    for (std::int32_t i = 0; i < sequences.S; ++i) sequences.positions.push_back(i);
  }
  sequences.documents.assign(sequences.tokens.size(), 0);
  sequences.weights.assign(sequences.tokens.size(), 1);
  const std::vector<double> nll = run_evaluation(config.model, RunOptions{}, sequences).nll;
  const double mean = std::accumulate(nll.begin(), nll.end(), 0.0) / static_cast<double>(nll.size());
  EXPECT_NEAR(mean / edit["nll"].get<double>(), 1, 1e-12);
}

constexpr const char* other_scaling =
    "rope_scaling: says otherwise than rope_parameters.full_attention; remove the one that is not meant";
constexpr const char* other_theta =
    "rope_theta: says otherwise than rope_parameters.full_attention; remove the one that is not meant";

INSTANTIATE_TEST_SUITE_P(
    All, EditedConfigs,
    ::testing::Values(
        Edit{"gemma2_pattern_of_the_class", ""},
        Edit{"gemma2_another_pattern",
             "sliding_window_pattern: is 3, but Gemma2ForCausalLM does not read it; give layer_types instead"},
        Edit{"gemma2_pattern_of_the_class_and_other_layers", ""}, Edit{"gemma2_another_pattern_and_its_layers", ""},
        Edit{"olmo3_pattern_of_the_class", ""},
        Edit{"olmo3_another_pattern",
             "sliding_window_pattern: is 3, but Olmo3ForCausalLM does not read it; give layer_types instead"},
        Edit{"gemma3_another_pattern", ""},
        Edit{"phi3_trained_length_within", "",
             "original_max_position_embeddings = 16 within the rotary keys has no effect, as in transformers; the "
             "trained length is 4096, the default of Phi3ForCausalLM"},
        Edit{"phi3_both_trained_lengths", "",
             "original_max_position_embeddings = 4096 within the rotary keys has no effect, as in transformers; the "
             "trained length is 32, given outside of them"},
        Edit{"gemma3_text_another_scaling", other_scaling}, Edit{"gemma3_text_the_same_scaling", ""},
        Edit{"gemma3_text_another_theta", other_theta}, Edit{"gemma3_text_the_same_theta", ""},
        Edit{"gemma3_text_theta_without_the_sections", ""},
        Edit{"gemma3_text_another_trained_length",
             "original_max_position_embeddings: is 16, but Gemma3ForCausalLM computes with 64; give the length that "
             "is meant in rope_parameters.full_attention alone"},
        Edit{"gemma3_text_the_same_trained_length", ""},
        Edit{"gemma3_text_another_local_theta",
             "rope_local_base_freq: says otherwise than rope_parameters.sliding_attention; remove the one that is not "
             "meant"},
        Edit{"gemma3_text_the_same_local_theta", ""}, Edit{"gemma3_text_local_theta_without_the_section", ""},
        Edit{"olmo3_another_scaling", other_scaling}, Edit{"olmo3_the_same_scaling", ""},
        Edit{"olmo3_another_theta", other_theta}, Edit{"olmo3_the_same_theta", ""},
        Edit{"olmo3_theta_without_the_sections", ""},
        Edit{"olmo3_another_trained_length",
             "original_max_position_embeddings: is 16, but Olmo3ForCausalLM computes with 64; give the length that "
             "is meant in rope_parameters.full_attention alone"},
        Edit{"olmo3_the_same_trained_length", ""},
        Edit{"llama_another_theta",
             "rope_theta: says otherwise than rope_parameters; remove the one that is not meant"},
        Edit{"llama_the_same_theta", ""}, Edit{"llama_theta_without_the_section", ""},
        Edit{"llama_another_theta_in_the_older_section",
             "rope_theta: says otherwise than rope_scaling; remove the one that is not meant"},
        Edit{"llama_an_older_section_without_theta",
             "rope_scaling: says otherwise than rope_parameters; remove the one that is not meant"},
        Edit{"llama_an_older_section_and_its_theta", ""},
        Edit{"llama_both_trained_lengths", "",
             "original_max_position_embeddings = 32 within the rotary keys has no effect, as in transformers; the "
             "trained length is 64, given outside of them"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace ringtrain::testing
