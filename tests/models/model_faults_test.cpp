// Folders and files without the model that they should have: one message each, with the tensor's name.
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <map>

#include "framework/storage/safetensors.h"
#include "framework/storage/safetensors_writer.h"
#include "layers/model_parameters.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/models/export_model.h"
#include "train/models/model_source.h"

namespace ringtrain::testing {
namespace {

struct Tensor32 {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor32>;

class ModelFaults : public TrainTest {
 protected:
  /// Copies a folder with one file, after changing its tensors.
  std::string copy_of(const std::string& name, const std::function<void(Tensors&)>& change) const {
    const std::string from = source_folder() + "/tests/models/folders/" + name;
    std::string to = at("model");
    fs::remove_all(to);
    fs::create_directory(to);
    fs::copy(from + "/config.json", to + "/config.json");
    const StoredTensors stored = read_safetensors_folder(from);
    StoredTensorReader reader(stored);
    Tensors tensors;
    for (const auto& [key, tensor] : stored.tensors) {
      tensors[key] = {tensor.shape, std::vector<float>(static_cast<std::size_t>(tensor.elements()))};
      reader.read(tensor, 0, tensor.elements(), tensors[key].values.data());
    }
    change(tensors);
    std::vector<StoredTensor> entries;
    for (const auto& [key, tensor] : tensors) entries.push_back({key, StoredType::float32, "", tensor.shape});
    SafetensorsWriter writer(to + "/model.safetensors", entries);
    for (const StoredTensor& tensor : writer.tensors()) {
      const std::vector<float>& values = tensors[tensor.name].values;
      writer.append(values.data(), values.size() * sizeof(float));
    }
    writer.finish();
    return to;
  }
  void expect_refused(const std::string& name, const std::function<void(Tensors&)>& change,
                      const std::vector<std::string>& parts) const {
    const std::string model = copy_of(name, change);
    const std::string sentence = error_of(ExitCode::checkpoint, [&] { open_model(model); });
    for (const std::string& part : parts) EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
  }
};

TEST_F(ModelFaults, AMissingForeignOrMisshapenTensorIsNamed) {
  const std::string up = "model.layers.1.mlp.up_proj.weight";
  expect_refused("llama", [&](Tensors& t) { t.erase(up); }, {"has no tensor " + up});
  expect_refused("llama", [&](Tensors& t) { std::swap(t[up].shape[0], t[up].shape[1]); },
                 {up + " is [16, 24], but this model's is [24, 16]", "model.safetensors"});
  expect_refused("llama",
                 [](Tensors& t) {
                   t["model.layers.0.mlp.experts.0.w1.weight"] = {{1}, {0}};
                 },
                 {"has model.layers.0.mlp.experts.0.w1.weight", "would be ignored"});
  expect_refused("llama", [](Tensors& t) { t.erase("lm_head.weight"); }, {"lm_head.weight", "tie_word_embeddings"});
  expect_refused("gpt2", [](Tensors& t) { t.erase("transformer.h.1.attn.c_attn.bias"); },
                 {"has no tensor transformer.h.1.attn.c_attn.bias"});
}

TEST_F(ModelFaults, ConstantsOfOldFilesArePassedOver) {
  open_model(copy_of("llama", [](Tensors& t) {
    t["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{4}, {1, 2, 3, 4}};
  }));
}

TEST_F(ModelFaults, AHeadInAdditionToATiedEmbeddingMustEqualIt) {
  const auto with_head = [](Tensors& t) { t["lm_head.weight"] = t["model.embed_tokens.weight"]; };
  open_model(copy_of("llama_tied", with_head));
  expect_refused("llama_tied",
                 [&](Tensors& t) {
                   with_head(t);
                   t["lm_head.weight"].values.back() += 1;
                 },
                 {"lm_head.weight differs from model.embed_tokens.weight", "tie_word_embeddings"});
}

TEST_F(ModelFaults, AWeightThatIsNoNumberIsNamed) {
  TextPlan plan;
  plan.vocab_size = 48;
  const std::string data = write_tokens("text.h5", plan);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::string model =
        copy_of("llama", [&](Tensors& t) { t["model.layers.1.mlp.up_proj.weight"].values[5] = bad; });
    const Config config = tiny(data, {"model.vocab_size=48", "model.hidden_size=16", "model.num_attention_heads=4",
                                      "model.num_key_value_heads=2", "model.head_dim=8", "model.intermediate_size=24",
                                      "model.tie_word_embeddings=false", "training.steps=1"});
    StartRequest start;
    start.init_from = model;
    expect_error(ExitCode::checkpoint, "element 5 of model.layers.1.mlp.up_proj.weight is",
                 [&] { run(config, "run", start); });
    error_of(ExitCode::checkpoint, [&] { export_model(open_model(model), {.output = at("out")}); });
    EXPECT_FALSE(fs::exists(at("out")));
  }
}

TEST_F(ModelFaults, AValueThatADtypeCannotHoldIsNamedAndNothingIsLeft) {
  const std::string model = copy_of("llama", [](Tensors& t) { t["model.norm.weight"].values[3] = 70000; });
  expect_error(ExitCode::numeric, "model.norm.weight holds 70000, which F16 cannot hold",
               [&] { export_model(open_model(model), {.output = at("out"), .dtype = StoredType::float16}); });
  for (const auto& entry : fs::directory_iterator(folder)) {
    EXPECT_EQ(entry.path().filename().string().find("out"), std::string::npos) << entry.path();
  }
}

/// Ids outside a vocabulary of 48, as files may have them: just outside, far away, and equal to a valid one modulo
/// 2^32.
constexpr std::int64_t foreign_ids[] = {48,        49,         257,        300,
                                        -1,        -1'000'000, INT32_MAX,  std::int64_t{INT32_MAX} + 1,
                                        INT64_MAX, INT64_MIN,  4294967301, 4294967296};

void expect_refused_begin(const std::string& model, std::int64_t id, const std::string& in) {
  const ChildResult result = run_child("generate",
                                       {"--checkpoint", model, "--tokens", "1,2,3", fmt::format("--begin-token={}", id),
                                        "--max-new-tokens", "5", "--repetition-penalty", "1.2"},
                                       in);
  EXPECT_EQ(result.code, 2) << id << "\n" << result.err;
  EXPECT_EQ(result.out, "");
  const bool is_id = id >= 0 && id <= INT32_MAX;
  EXPECT_EQ(
      result.err,
      is_id
          ? fmt::format(
                "generate: --begin-token: {} is not a token of this model, whose vocabulary has the ids 0 to 47\n", id)
          : fmt::format("generate: --begin-token: {} is neither none nor a token's id; see generate --help\n", id));
}

TEST_F(ModelFaults, AnIdOfAFolderThatIsNoTokenNeverComesToTheModel) {
  const std::string model = copy_of("llama", [](Tensors&) {});
  const auto with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json config = nlohmann::json::parse(content_of(model + "/config.json"));
    config[key] = value;
    std::ofstream(model + "/config.json") << config;
  };
  for (const std::int64_t id : foreign_ids) expect_refused_begin("model", id, folder);
  for (const nlohmann::json& id : {nlohmann::json(1.0), nlohmann::json(1e300), nlohmann::json("5"),
                                   nlohmann::json(true), nlohmann::json(UINT64_MAX)}) {
    with("bos_token_id", id);
    expect_error(ExitCode::checkpoint, "bos_token_id", [&] { open_model(model); });
  }
  // Without the flag, nothing needs it; the end of a text is reported, and never truncated to 32 bits.
  with("bos_token_id", 300);
  with("eos_token_id", {4294967301, 47, -1});
  const ModelSource source = open_model(model);
  EXPECT_EQ(source.ends, (EndIds{std::nullopt, {47}}));
  EXPECT_EQ(source.unknown_ends.size(), 3U);
  const ChildResult result =
      run_child("generate", {"--checkpoint", "model", "--tokens", "1,2,3", "--max-new-tokens", "3"}, folder);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(holds(result.err, "model/config.json: eos_token_id: 4294967301 is not a token of this model"));
  // An export passes on only tokens, and says so.
  const ChildResult exported = run_child("export", {"--checkpoint", "model", "--output", "out"}, folder);
  EXPECT_EQ(exported.code, 0) << exported.err;
  const auto written = nlohmann::json::parse(content_of(at("out/config.json")));
  EXPECT_EQ(written["bos_token_id"], nullptr);
  EXPECT_EQ(written["eos_token_id"], 47);
  EXPECT_NE(exported.err.find("bos_token_id: 300 is not a token of this model"), std::string::npos) << exported.err;
}

TEST_F(ModelFaults, WhatIsNoModelIsSaid) {
  error_of(ExitCode::checkpoint, [&] { open_model(at("nothing")); });
  fs::copy(copy_of("llama", [](Tensors&) {}), at("bare"));
  fs::remove(at("bare/config.json"));
  expect_error(ExitCode::checkpoint, "no config.json", [&] { open_model(at("bare")); });
  fs::copy(at("model/config.json"), at("bare/config.json"));
  fs::remove(at("bare/model.safetensors"));
  expect_error(ExitCode::checkpoint, "neither model.safetensors", [&] { open_model(at("bare")); });
  std::ofstream(at("model.gguf")) << "GGUF, which a command of its own converts";
  expect_error(ExitCode::checkpoint, "python3 -m ringtrain_gguf --input", [&] { open_model(at("model.gguf")); });
}

}  // namespace
}  // namespace ringtrain::testing
