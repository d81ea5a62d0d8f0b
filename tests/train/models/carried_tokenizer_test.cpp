// A damaged tokenizer.json: every reader ends with one message that names the file, never with a crash. If it belongs
// to a model, the exit code is that of a damaged model; if prepare gets it, that of data.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "data/tokenizer/tokenizer.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/models/carried_tokenizer.h"
#include "train/models/model_source.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

const std::vector<std::string> damaged_texts{
    "{}",
    "[]",
    "",
    "{",
    R"({"added_tokens": ["x"], "model": {}})",
    R"({"model": null})",
    R"({"pre_tokenizer": {"type": "Metaspace"}, "model": {"type": "BPE", "vocab": {}, "merges": []}})",
    R"({"added_tokens": [{"content": "x"}], "model": {"type": "Unigram", "vocab": []}})",
    R"({"added_tokens": {"x": {"id": 47, "content": "x"}}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})",
    R"({"version": "1.0", "version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})",
    std::string(40, '[') + std::string(40, ']'),
    std::string("{\"model\": \"\0\"}", 14)};

class CarriedTokenizer : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    fs::copy(source_folder() + "/tests/models/folders/llama", at("model"));
    fs::create_directory(at("out"));
    tokenizer_ = json::parse(content_of(source_folder() + "/tests/tokenizers/tiny/sentencepiece.json"));
    shrink(tokenizer_["model"]["merges"]);
  }
  static void shrink(json& list) {
    while (list.size() > 4) list.erase(list.size() - 1);
  }
  void write_tokenizer(const std::string& text) const { std::ofstream(at("model/tokenizer.json")) << text; }
  /// Returns the code of an action that may fail with one message that names the folder, 0 if it does not fail.
  template <class Action>
  int code_of(Action&& action) const {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_TRUE(holds(std::string(error.what()), at("model"))) << error.what();
      return static_cast<int>(error.code());
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    return 0;
  }
  /// Reads the file in every way, and expects the allowed results. Returns whether it was reported as damaged.
  bool read_in_every_way(const std::string& text, const std::string& trace) const {
    const ::testing::ScopedTrace scope(__FILE__, __LINE__, trace);
    write_tokenizer(text);
    const int carried = code_of([&] {
      carry_tokenizer(at("model"), at("out"), {0, {47}}, OwnGeneration::kept, ExitCode::usage);
    });
    EXPECT_TRUE(carried == 0 || carried == 4) << carried;
    for (const ExitCode damaged : {ExitCode::checkpoint, ExitCode::data}) {
      const int loaded = code_of([&] { load_tokenizer(at("model"), damaged); });
      EXPECT_TRUE(loaded == 0 || loaded == 3 || loaded == static_cast<int>(damaged)) << loaded;
    }
    return carried == 4;
  }

  json tokenizer_;
};

TEST_F(CarriedTokenizer, WhatIsDamagedIsNamedByEveryReader) {
  write_document("text.h5", 48, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 47});
  std::ofstream(at("run.yaml")) << "model: {from: model}\n"
                                   "data: {train: text.h5}\n"
                                   "training: {seq_len: 8, global_batch_size: 1, steps: 1}\n";
  const std::vector<std::pair<const char*, std::vector<std::string>>> commands{
      {"export", {"--checkpoint", "model", "--output", "exported"}},
      {"generate", {"--checkpoint", "model", "--prompt", "a", "--max-new-tokens", "1"}},
      {"evaluate",
       {"--checkpoint", "model", "--data", "text.h5", "--part", "whole", "--context-lengths", "8", "--target-tokens",
        "4", "--target-blocks", "1"}},
      {"train", {"--config", "run.yaml", "--output", "run"}}};
  for (const std::string& text : damaged_texts) EXPECT_TRUE(read_in_every_way(text, text)) << text;
  for (const std::string& text : {damaged_texts[0], damaged_texts[4]}) {
    write_tokenizer(text);
    for (const auto& [program, arguments] : commands) {
      const ChildResult result = run_child(program, arguments, folder);
      expect_end(result, 4, {"model/tokenizer.json"});
      EXPECT_FALSE(fs::exists(at("run"))) << program;
      EXPECT_FALSE(fs::exists(at("exported"))) << program;
    }
    expect_end(run_child("prepare", {"--input", "run.yaml", "--tokenizer", "model", "--output", "made.h5"}, folder), 3,
               {"model/tokenizer.json"});
  }
}

TEST_F(CarriedTokenizer, AFileNextToATokenizerConfigIsReadToo) {
  std::ofstream(at("model/tokenizer_config.json")) << "{}";
  EXPECT_TRUE(read_in_every_way("{}", "an object of nothing"));
  EXPECT_FALSE(read_in_every_way(tokenizer_.dump(), "whole"));
}

TEST_F(CarriedTokenizer, AKindThatIsNotReadGoesAlong) {
  tokenizer_["model"]["type"] = "Unigram";
  write_tokenizer(tokenizer_.dump());
  carry_tokenizer(at("model"), at("out"), {}, OwnGeneration::kept, ExitCode::usage);
  EXPECT_EQ(content_of(at("out/tokenizer.json")), content_of(at("model/tokenizer.json")));
  expect_error(ExitCode::data, "Unigram", [&] { load_tokenizer(at("model"), ExitCode::checkpoint); });
}

TEST_F(CarriedTokenizer, NoBeginningOfAFileIsAFaultOfTheProgram) {
  shrink(tokenizer_["added_tokens"]);
  const std::string whole = tokenizer_.dump();
  ASSERT_FALSE(read_in_every_way(whole, "whole"));
  const std::size_t step = whole.size() / 80 + 1;
  for (std::size_t length = 0; length < whole.size(); length += step) {
    EXPECT_TRUE(read_in_every_way(whole.substr(0, length), std::to_string(length)));
  }
}

TEST_F(CarriedTokenizer, NoValueOfAMemberIsAFaultOfTheProgram) {
  shrink(tokenizer_["added_tokens"]);
  std::vector<json::json_pointer> places;
  const auto flat = tokenizer_.flatten();
  std::set<std::string> seen;
  for (const auto& [pointer, value] : flat.items()) {
    for (json::json_pointer place(pointer); !place.empty(); place = place.parent_pointer()) {
      if (place.to_string().starts_with("/model/vocab/") && places.size() > 60) continue;  // all of them are similar
      if (seen.insert(place.to_string()).second) places.push_back(place);
    }
  }
  const std::vector<json> values{nullptr, json::object(), json::array(), "x", -1, 1e64, {{"id", 1}}};
  int damaged = 0;
  for (const auto& place : places) {
    for (const json& value : values) {
      json changed = tokenizer_;
      changed[place] = value;
      damaged += read_in_every_way(changed.dump(), place.to_string() + " = " + value.dump()) ? 1 : 0;
    }
    json without = tokenizer_;
    json& parent = without[place.parent_pointer()];
    if (parent.is_array()) {
      parent.erase(std::stoul(place.back()));
    } else {
      parent.erase(place.back());
    }
    damaged += read_in_every_way(without.dump(), place.to_string() + " is missing") ? 1 : 0;
  }
  EXPECT_GT(damaged, 200);
}

}  // namespace
}  // namespace ringtrain::testing
