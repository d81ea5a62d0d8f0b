// What models from elsewhere say: the tokens that transformers chooses greedily, on every ring.
#include <filesystem>
#include <fstream>

#include "tests/support/paths.h"
#include "tests/train/train_fixture.h"
#include "train/generation/checkpoint_generation.h"

namespace ringtrain::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Generated : public TrainTest {};
class GeneratedByClass : public Generated, public ::testing::WithParamInterface<const char*> {};

TEST_P(GeneratedByClass, TokensAreThoseOfTransformersOnEveryRing) {
  const std::string name = GetParam();
  const json golden = json::parse(content_of(source_folder() + "/tests/models/generated.json"));
  fs::copy(source_folder() + "/tests/models/folders/" + name, at("model"));
  json config = json::parse(content_of(at("model/config.json")));
  config["eos_token_id"] = golden["changes"]["eos_token_id"];
  if (!name.starts_with("gpt2")) {  // whose positions are a table
    config["max_position_embeddings"] = golden["changes"]["max_position_embeddings"];
  }
  std::ofstream(at("model/config.json")) << config.dump();
  json generation = json::parse(content_of(source_folder() + "/tests/models/folders/llama/generation_config.json"));
  generation["eos_token_id"] = golden["changes"]["eos_token_id"];
  std::ofstream(at("model/generation_config.json")) << generation.dump();
  const std::vector<std::int32_t> expected = golden["tokens"][name];
  std::string ids;
  for (const std::int32_t id : expected) ids += fmt::format("{}{}", ids.empty() ? "" : ",", id);
  GenerationOptions options;
  options.checkpoint = at("model");
  options.tokens = golden["prompt"].get<std::vector<std::int64_t>>();
  options.max_new_tokens = std::ssize(expected);
  options.dtype = "float64";
  for (const std::int64_t ring : {1, 2, 3}) {
    options.sequence_ranks = ring;
    std::string said;
    Launcher threads;
    generate_from_checkpoint(options, threads, [&](std::string_view text) { said += text; });
    EXPECT_EQ(said, ids) << ring << " ranks";
  }
}

TEST_F(Generated, AnyEndOfEitherFileEndsTheText) {
  const json golden = json::parse(content_of(source_folder() + "/tests/models/generated.json"));
  fs::copy(source_folder() + "/tests/models/folders/qwen3", at("model"));
  const std::vector<std::int32_t> all = golden["tokens"]["qwen3"];
  const auto said_with = [&](std::int32_t in_config, const json& in_generation_config) {
    json config = json::parse(content_of(at("model/config.json")));
    config["eos_token_id"] = in_config;
    std::ofstream(at("model/config.json")) << config.dump();
    std::ofstream(at("model/generation_config.json")) << json{{"eos_token_id", in_generation_config}}.dump();
    GenerationOptions options;
    options.checkpoint = at("model");
    options.tokens = golden["prompt"].get<std::vector<std::int64_t>>();
    options.max_new_tokens = 8;
    options.dtype = "float64";
    std::string said;
    Launcher threads;
    generate_from_checkpoint(options, threads, [&](std::string_view text) { said += text; });
    return said;
  };
  const std::int32_t never = 1, third = all[4];  // of 14, 47, 14, 47, 29
  EXPECT_EQ(said_with(never, 47), "14");
  EXPECT_EQ(said_with(47, never), "14");
  EXPECT_EQ(said_with(never, {never, third}), "14,47,14,47");
}

INSTANTIATE_TEST_SUITE_P(Of, GeneratedByClass,
                         ::testing::Values("llama", "llama_tied", "llama_float64", "mistral", "qwen2", "qwen3",
                                           "smollm3", "olmo2", "olmo3", "gemma2", "gemma3", "phi3", "granite", "gpt2",
                                           "gpt2_untied"));

}  // namespace
}  // namespace ringtrain::testing
