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

class Generated : public TrainTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(Generated, TokensAreThoseOfTransformersOnEveryRing) {
  const std::string name = GetParam();
  const json golden = json::parse(content_of(source_folder() + "/tests/models/generated.json"));
  fs::copy(source_folder() + "/tests/models/folders/" + name, at("model"));
  json config = json::parse(content_of(at("model/config.json")));
  config["eos_token_id"] = golden["changes"]["eos_token_id"];
  if (!name.starts_with("gpt2")) {  // whose positions are a table
    config["max_position_embeddings"] = golden["changes"]["max_position_embeddings"];
  }
  std::ofstream(at("model/config.json")) << config.dump();
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

INSTANTIATE_TEST_SUITE_P(Of, Generated,
                         ::testing::Values("llama", "llama_tied", "llama_float64", "mistral", "qwen2", "qwen3", "gpt2",
                                           "gpt2_untied"));

}  // namespace
}  // namespace ringtrain::testing
