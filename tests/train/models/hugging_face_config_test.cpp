// config.json of a Hugging Face folder: how each class is read, old and new rotary keys, what is refused and with which
// message, and that written files are read back.
#include "train/models/hugging_face_config.h"
#include "framework/config/config.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/config/config_schema.h"
#include "framework/config/read_config.h"
#include "layers/model_parameters.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "train/models/hugging_face_families.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

/// A file of a class, small enough to be read by eye, with other or additional keys.
json file(const std::string& model_type, const char* keys = "{}") {
  json base = {{"model_type", model_type}, {"vocab_size", 96}};
  if (model_type == "gpt2") {
    base.update({{"n_embd", 48}, {"n_layer", 2}, {"n_head", 4}, {"n_positions", 64}});
  } else {
    base.update({{"hidden_size", 48},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"intermediate_size", 80}});
  }
  base.update(json::parse(keys));
  return base;
}

HuggingFaceConfig read(const json& content) {
  return parse_hugging_face_config(content.dump(), "DIR/config.json");
}

/// The keys in which a model differs from another, and their values: "rope_theta 500000, sliding_window 0".
std::string difference(const ModelConfig& from, const ModelConfig& to) {
  Config one, other;
  one.model = from;
  other.model = to;
  std::string text;
  for (const ConfigDifference& d : differences(one, other)) {
    text += (text.empty() ? "" : ", ") + d.key.substr(std::string("model.").size()) + " " + d.after;
  }
  return text;
}

/// Returns the rows of a table of hugging_face_keys.json: keys of a class's file, and the results.
json rows(const char* table) {
  return json::parse(std::ifstream(source_folder() + "/tests/train/models/hugging_face_keys.json")).at(table);
}
json file_of(const json& row) {
  return file(row.at("model_type"), row.at("keys").dump().c_str());
}

TEST(HuggingFaceConfigTest, KeysMeanWhatTheClassMeansByThem) {
  const json all = rows("read");
  ASSERT_EQ(all.size(), 33);
  for (const json& row : all) {
    SCOPED_TRACE(row);
    const HuggingFaceConfig config = read(file_of(row));
    EXPECT_EQ(difference(read(file(row.at("model_type"))).model, config.model),
              row.at("difference").get<std::string>());
    const std::string log = row.value("log", "");
    EXPECT_EQ(fmt::format("{}", fmt::join(config.logs, "; ")), log.empty() ? "" : "DIR/config.json: " + log);
  }
}

/// Keys as published, not as transformers 5 saves them, with small sizes.
TEST(HuggingFaceConfigTest, FilesAreReadAsTheyWerePublished) {
  const json published = json::parse(std::ifstream(source_folder() + "/tests/golden/published_keys.json"));
  ASSERT_EQ(published.size(), 8U);
  for (const auto& [name, known] : published.items()) {
    const json& keys = known.at("keys");
    const HuggingFaceConfig config = read(file(keys.at("model_type"), keys.dump().c_str()));
    EXPECT_EQ(difference(read(file(keys.at("model_type"))).model, config.model),
              known.at("difference").get<std::string>())
        << name;
    EXPECT_EQ(fmt::format("{}", fmt::join(config.logs, "; ")), known.at("log").get<std::string>()) << name;
  }
}

/// Files as transformers saves them: of published models, by name, and with the defaults of each class, by model_type.
json saved_configs() {
  return json::parse(std::ifstream(source_folder() + "/tests/golden/published_configs.json"));
}

TEST(HuggingFaceConfigTest, DefaultsAreThoseOfTheClasses) {
  const json saved = saved_configs();
  for (const Family& family : families) {
    const std::string type = name_of(family.architecture);
    EXPECT_EQ(difference(read(saved.at(type).at("config")).model, read(json{{"model_type", type}}).model), "") << type;
  }
}

TEST(HuggingFaceConfigTest, ModelsHaveTheParametersThatTransformersCounts) {
  const json saved = saved_configs();
  ASSERT_EQ(saved.size(), 26U + all_architectures.size());
  for (const auto& [name, known] : saved.items()) {
    EXPECT_EQ(make_parameter_table(read(known.at("config")).model).count(), known.at("parameters")) << name;
  }
}

TEST(HuggingFaceConfigTest, RemarksAreNoLogsAndEndsAreRead) {
  const HuggingFaceConfig config = read(file("gpt2", R"({"attn_pdrop": 0.0, "use_cache": true, "n_ctx": 64,
      "task_specific_params": {"text-generation": {"do_sample": true}}, "summary_type": "cls_index",
      "bos_token_id": 50256, "eos_token_id": 50256, "some_flag_nobody_set": false})"));
  EXPECT_TRUE(config.logs.empty());
  EXPECT_EQ(config.ends, (EndIds{50256, {50256}}));
  EXPECT_EQ(read(file("llama", R"({"eos_token_id": [3, 5]})")).ends.ends, (std::vector<std::int64_t>{3, 5}));
}

/// A file of transformers 4 has one base, which applies to all layers there; transformers 5.23 applies it only to those
/// without a window. A written file has a section for each kind, and is the same model in both.
TEST(HuggingFaceConfigTest, TheOneBaseOfAnOlmo3IsWrittenForEachKindOfLayer) {
  const ModelConfig model = read(file("olmo3", R"({"rope_theta": 10000.0, "num_hidden_layers": 4})")).model;
  const json written = json::parse(write_hugging_face_config(model, {}));
  EXPECT_EQ(written["rope_theta"], 10000);
  for (const char* const kind : {"full_attention", "sliding_attention"}) {
    EXPECT_EQ(written["rope_parameters"][kind]["rope_theta"], 10000) << kind;
  }
}

TEST(HuggingFaceConfigTest, WhatIsNotComputedIsRefusedInOneSentenceThatNamesTheKey) {
  const json all = rows("refused");
  ASSERT_EQ(all.size(), 47);
  for (const json& row : all) {
    const json content = file_of(row);
    EXPECT_EQ(error_of(ExitCode::checkpoint, [&] { read(content); }),
              "DIR/config.json: " + row.at("sentence").get<std::string>());
  }
}

TEST(HuggingFaceConfigTest, AFileThatIsNoObjectIsRefused) {
  const auto of = [](const char* text) {
    return error_of(ExitCode::checkpoint, [&] { parse_hugging_face_config(text, "c.json"); });
  };
  EXPECT_EQ(of("[1]"), "c.json: is [1], but must be an object");
  EXPECT_EQ(of("{}"), "c.json: model_type: is missing, and so is architectures; is this a model's file?");
  EXPECT_TRUE(of("{\"model_type\": ").starts_with("c.json: is not JSON: "));
}

TEST(HuggingFaceConfigTest, WhatIsWrittenIsReadBack) {
  const json ropes = rows("ropes");
  ASSERT_EQ(ropes.size(), 6);
  for (const Family& family : families) {
    for (const json& rope : ropes) {
      for (const bool tied : {false, true}) {
        json content = file(name_of(family.architecture));
        if (family.rotary && family.trained_length == 0) content.update(rope);
        if (family.rotary) content.update({{"head_dim", 4}, {"rope_theta", 12345.5}});
        content["tie_word_embeddings"] = tied;
        if (family.sliding_theta > 0 && content.contains("rope_scaling")) {
          content["rope_scaling"].erase("truncate");  // refused there
        }
        const ModelConfig model = read(content).model;
        const std::string text =
            write_hugging_face_config(model, {.dtype = "bfloat16", .context_length = 0, .ends = {1, {2, 3}}});
        const HuggingFaceConfig again = parse_hugging_face_config(text, "again");
        EXPECT_EQ(difference(model, again.model), "") << text;
        EXPECT_EQ(again.logs, std::vector<std::string>{});
        EXPECT_EQ(again.ends.begin, 1);
        EXPECT_EQ(again.ends.ends, (std::vector<std::int64_t>{2, 3}));
        EXPECT_EQ(json::parse(text)["torch_dtype"], "bfloat16");
        EXPECT_EQ(json::parse(text)["dtype"], "bfloat16");
      }
    }
  }
}

TEST(HuggingFaceConfigTest, NtkIsWrittenAsItsTheta) {
  ModelConfig model = read(file("llama", R"({"rope_theta": 10000, "head_dim": 16})")).model;
  model.rope_scaling.type = RopeType::ntk;
  model.rope_scaling.factor = 4;
  const ModelConfig again = parse_hugging_face_config(write_hugging_face_config(model, {}), "again").model;
  EXPECT_EQ(again.rope_scaling.type, RopeType::none);
  EXPECT_NEAR(again.rope_theta / 48760.54616817902, 1, 1e-14);  // 10000 * 4^(16 / 14)
}

TEST(HuggingFaceConfigTest, ALlamaWithAWindowIsWrittenAsAMistral) {
  ModelConfig model = read(file("llama")).model;
  model.sliding_window = 9;
  const json text = json::parse(write_hugging_face_config(model, {}));
  EXPECT_EQ(text["architectures"][0], "MistralForCausalLM");
  EXPECT_EQ(text["model_type"], "mistral");
  EXPECT_EQ(text["sliding_window"], 9);
}

void set(ModelConfig& model, const std::string& key, const std::string& value) {
  Config config;
  config.model = model;
  const auto found = std::ranges::find(config_keys(), "model." + key, &ConfigKey::path);
  const YamlValue line = parse_yaml("value: " + value);
  found->read(config, line.entries.at(0).value, [&](int, const std::string& problem) { FAIL() << key << problem; });
  model = config.model;
}

/// Files that are read, keys of the model that are then set, and the reason why it is not written.
TEST(HuggingFaceConfigTest, WhatAClassCannotHoldIsRefusedInASentenceThatNamesTheKey) {
  const json all = rows("unwritten");
  ASSERT_EQ(all.size(), 15);
  for (const json& row : all) {
    SCOPED_TRACE(row);
    ModelConfig model = read(file_of(row)).model;
    EXPECT_NO_THROW(write_hugging_face_config(model, {}));
    for (const auto& [key, value] : row.at("settings").items()) set(model, key, value);
    EXPECT_EQ(error_of(ExitCode::usage, [&] { write_hugging_face_config(model, {}); }),
              fmt::format("a model of architecture {} cannot be written for transformers: {}",
                          row.at("model_type").get<std::string>(), row.at("sentence").get<std::string>()));
  }
}

}  // namespace
}  // namespace ringtrain::testing
