// Models as transformers saves them (tests/models/make_folders.py): their results, and their exports.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/models/export_model.h"
#include "train/models/model_source.h"
#include "train/programs/command_line.h"

namespace ringtrain::testing {
namespace {

std::string folder_of(const std::string& name) {
  return source_folder() + "/tests/models/folders/" + name;
}

nlohmann::json expected_of(const std::string& name) {
  return nlohmann::json::parse(content_of(folder_of(name) + "/expected.json"));
}

class FolderModel : public TrainTest {
 protected:
  /// Writes the tokens for a folder's numbers, as one document. Returns the path.
  std::string tokens_of(const nlohmann::json& expected) const {
    return write_document("tokens.h5", expected["vocab_size"], expected["tokens"]);
  }
  /// Returns the nll at each context length of the folder's numbers.
  static std::vector<double> nll(const std::string& model, const std::string& data, const nlohmann::json& expected,
                                 std::int64_t ring) {
    EvaluationOptions options;
    options.checkpoint = model;
    options.data = data;
    options.request = {expected["context_lengths"], expected["target_tokens"], 1};
    options.mesh.sequence = ring;
    options.dtype = "float64";
    std::vector<double> values;
    for (const LengthResult& result : evaluate_on_threads(options).results) values.push_back(result.nll.value);
    return values;
  }
  static StoredType dtype_of(const nlohmann::json& expected) {
    return expected["dtype"] == "bfloat16"  ? StoredType::bfloat16
           : expected["dtype"] == "float16" ? StoredType::float16
                                            : StoredType::float32;
  }
};

class Folders : public FolderModel, public ::testing::WithParamInterface<const char*> {};

TEST_P(Folders, ComputeWhatTransformersDoes) {
  const nlohmann::json expected = expected_of(GetParam());
  const std::vector<double> theirs = expected["nll"];
  const std::string data = tokens_of(expected);
  for (const std::int64_t ring : {1, 2, 3}) {
    EXPECT_LT(relative_difference(nll(folder_of(GetParam()), data, expected, ring), theirs), 1e-9) << ring << " ranks";
  }
}

/// Those in a dtype that can be written.
class WrittenFolders : public Folders {};

TEST_P(WrittenFolders, ComeOutAsTheyWentIn) {
  const nlohmann::json expected = expected_of(GetParam());
  // The original GPT-2 is exported with transformers' names.
  const std::string theirs = folder_of(std::string(GetParam()) == "gpt2_original" ? "gpt2" : GetParam());
  const ModelSource source = open_model(folder_of(GetParam()));
  export_model(source,
               {.output = at("out"), .dtype = dtype_of(expected), .max_shard_bytes = expected["max_shard_size"]});
  int files = 0;
  for (const auto& entry : fs::directory_iterator(theirs)) {
    const std::string name = entry.path().filename().string();
    if (name.find("safetensors") == std::string::npos) continue;
    ++files;
    EXPECT_EQ(content_of(at("out/" + name)), content_of(entry.path().string())) << name;
  }
  EXPECT_GT(files, 0);
  // Nothing else: no partial file, and no shard that is missing in the index.
  const auto is_weights = [](const auto& entry) {
    return entry.path().filename().string().find("safetensors") != std::string::npos;
  };
  EXPECT_EQ(std::count_if(fs::directory_iterator(at("out")), fs::directory_iterator{}, is_weights), files);
  const std::string data = tokens_of(expected);
  EXPECT_EQ(nll(at("out"), data, expected, 1), nll(folder_of(GetParam()), data, expected, 1));
}

/// Those in float64: read, and written as float32.
class NarrowedFolders : public Folders {};

TEST_P(NarrowedFolders, ComeOutRoundedToFloat32) {
  const nlohmann::json expected = expected_of(GetParam());
  const ModelSource source = open_model(folder_of(GetParam()));
  export_model(source, {.output = at("out"), .dtype = StoredType::float32});
  const std::string data = tokens_of(expected);
  const std::vector<double> theirs = expected["nll"];
  EXPECT_LT(relative_difference(nll(at("out"), data, expected, 1), theirs), 1e-6);
}

const std::vector<const char*> written{"llama",   "llama_tied", "mistral", "qwen2",       "qwen3",
                                       "smollm3", "olmo2",      "olmo3",   "gemma2",      "gemma3",
                                       "phi3",    "granite",    "gpt2",    "gpt2_untied", "gpt2_original"};
const std::vector<const char*> narrowed{"llama_float64"};
INSTANTIATE_TEST_SUITE_P(Of, WrittenFolders, ::testing::ValuesIn(written));
INSTANTIATE_TEST_SUITE_P(Of, NarrowedFolders, ::testing::ValuesIn(narrowed));
INSTANTIATE_TEST_SUITE_P(Of, Folders, ::testing::ValuesIn(written));
INSTANTIATE_TEST_SUITE_P(Narrowed, Folders, ::testing::ValuesIn(narrowed));

TEST_F(FolderModel, ARunBeginsWithTheirWeightsAndIsExportedTheSameFromAnyMesh) {
  TextPlan plan;
  plan.vocab_size = 48;
  const std::string data = write_tokens("text.h5", plan);
  for (const int ring : {1, 2}) {
    const std::string output = fmt::format("run{}", ring);
    const Config config = tiny(
        data, {"model.architecture=qwen3", "model.vocab_size=48", "model.hidden_size=16", "model.num_hidden_layers=2",
               "model.num_attention_heads=4", "model.num_key_value_heads=2", "model.head_dim=8",
               "model.intermediate_size=24", "model.rope_theta=10000", "model.rms_norm_eps=1e-6",
               "model.tie_word_embeddings=false", "training.steps=1", "optimizer.lr=1e-300", "optimizer.weight_decay=0",
               "mesh.layout=contiguous", fmt::format("mesh.sequence={}", ring)});
    StartRequest start;
    start.init_from = folder_of("qwen3");
    run(config, output, start);
    export_model(open_model(at(output)),
                 {.output = at(output + "-out"), .max_shard_bytes = expected_of("qwen3")["max_shard_size"]});
    for (const char* name :
         {"model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors", "model.safetensors.index.json"}) {
      EXPECT_EQ(content_of(at(output + "-out/" + name)), content_of(folder_of("qwen3") + "/" + name)) << name;
    }
  }
}

/// A folder that was saved twice, once as one file and once as shards: transformers 5.24 reads the single file.
TEST_F(FolderModel, AStaleFileNextToAnIndexIsReadWithANoteOfEveryProgram) {
  fs::copy(folder_of("llama"), at("both"));
  std::ofstream(at("both/model.safetensors.index.json"))
      << R"({"metadata": {}, "weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}})";
  const nlohmann::json expected = expected_of("llama");
  const std::string data = tokens_of(expected);
  EXPECT_LT(relative_difference(nll(at("both"), data, expected, 1), expected["nll"]), 1e-9);
  const std::string note =
      "both: holds both model.safetensors and model.safetensors.index.json; the single file is read, as in "
      "transformers, and the shards are not\n";
  std::ofstream(at("run.yaml")) << "model: {from: both}\ndata: {train: " << write_tokens("text.h5", {.vocab_size = 48})
                                << "}\ntraining: {seq_len: 32, steps: 1}\n";
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"export", "--checkpoint", "both", "--output", "out"},
           {"generate", "--checkpoint", "both", "--tokens", "1,2", "--max-new-tokens", "1"},
           {"evaluate", "--checkpoint", "both", "--data", "tokens.h5", "--context-lengths", "16", "--target-tokens",
            "8", "--target-blocks", "1"},
           {"train", "--config", "run.yaml", "--output", "run"}}) {
    const ChildResult done = run_child(words[0], {words.begin() + 1, words.end()}, folder);
    EXPECT_EQ(done.code, 0) << words[0] << done.err;
    EXPECT_NE((done.out + done.err).find(note), std::string::npos) << words[0] << done.out << done.err;
  }
}

TEST(Shards, AreFilledInOrderAndALargeTensorHasItsOwn) {
  using Shards = std::vector<std::vector<std::size_t>>;
  EXPECT_EQ(split_into_shards({4, 4, 4, 2}, 8), (Shards{{0, 1}, {2, 3}}));
  EXPECT_EQ(split_into_shards({4, 20, 4, 1}, 8), (Shards{{1}, {0, 2}, {3}}));
  EXPECT_EQ(split_into_shards({3}, 3), (Shards{{0}}));
  EXPECT_EQ(split_into_shards({20, 20}, 8), (Shards{{0}, {1}}));
}

TEST(ByteCounts, HaveTheUnitsOfTransformersAndBinaryOnes) {
  const auto parsed = [](const std::string& count) {
    CommandLine app("a test", "export");
    std::int64_t bytes = 0;
    app.add_bytes("--max-shard-size", bytes, "SIZE", "");
    std::string program = "export", argument = "--max-shard-size=" + count;
    char* arguments[] = {program.data(), argument.data()};
    parse_command_line(app, 2, arguments);
    return bytes;
  };
  EXPECT_EQ(parsed("5GB"), 5'000'000'000);
  EXPECT_EQ(parsed("1GiB"), 1 << 30);
  EXPECT_EQ(parsed("4096"), 4096);
  for (const char* wrong : {"0", "0GB", "-1", "-1GB", "5.5GB", "5XB", "99999999999TB", "9999999999999999999"}) {
    error_of(ExitCode::usage, [&] { parsed(wrong); });
  }
}

}  // namespace
}  // namespace ringtrain::testing
