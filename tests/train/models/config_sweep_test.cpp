// Every architecture x every key of the section model, on tiny models with every kind of rotary scaling and window: a
// model that is written as config.json and read back computes the same nll, or is refused with exit code 2. The keys
// and most of their values come from the table of keys, so a new key is included without a change here.
//
// RINGTRAIN_SWEPT_CONFIGS=FILE makes the test write each config with its nll, one per line, for
// tests/golden/check_swept_configs.py, which computes them in transformers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "framework/config/config.h"
#include "framework/config/config_schema.h"
#include "framework/config/read_config.h"
#include "framework/error.h"
#include "layers/check_model.h"
#include "layers/model_parameters.h"
#include "tests/layers/harness.h"
#include "train/models/hugging_face_config.h"
#include "train/models/hugging_face_names.h"

namespace ringtrain::testing {
namespace {

/// A value of a key, as YAML.
struct Setting {
  const ConfigKey* key;
  std::string value;
};

/// Sets a key. Returns false if it does not accept the value.
bool set(Config& config, const Setting& setting) {
  bool taken = true;
  const YamlValue line = parse_yaml("value: " + setting.value);
  setting.key->read(config, line.entries.at(0).value, [&](int, const std::string&) { taken = false; });
  return taken;
}

/// Returns the words of "a | b | c", none of other text.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (text.find(" | ") != std::string_view::npos) {
    words.emplace_back(text.substr(0, text.find(" | ")));
    text.remove_prefix(words.back().size() + 3);
  }
  if (!words.empty()) words.emplace_back(text);
  return words;
}

/// Returns values to try, according to the key's row. Values out of its range are dropped later.
std::vector<std::string> values_to_try(const ConfigKey& key) {
  constexpr std::string_view list = "list of ";
  const bool is_list = key.values.starts_with(list);
  const std::vector<std::string> words = words_of(std::string_view(key.values).substr(is_list ? list.size() : 0));
  if (is_list && words.empty()) return {"[1, 1.25]", "[3, 2.5]", "[1.5, 2, 4]"};  // of numbers: for heads of 4 or 6
  if (!is_list) return words.empty() ? std::vector<std::string>{"0", "0.5", "1", "1.5", "3", "8"} : words;
  std::vector<std::string> lists{"[]"};
  for (const std::string& word : words) {
    lists.push_back("[" + word + "]");
    for (const std::string& other : words) lists.push_back("[" + word + ", " + other + "]");
  }
  return lists;
}

/// Returns every value to try of every key of the section, except those with which a case begins.
std::vector<Setting> all_settings() {
  std::vector<Setting> settings;
  for (const ConfigKey& key : config_keys()) {
    if (!key.path.starts_with("model.") || key.is_source || key.path == "model.architecture") continue;
    for (const std::string& value : values_to_try(key)) settings.push_back({&key, value});
  }
  return settings;
}

/// Returns the initial configs of cases: each kind of rotary scaling, without a window, with one, and with one in some
/// layers.
std::vector<Config> beginnings(Architecture architecture) {
  Config tiny;
  tiny.model.architecture = architecture;
  tiny.model.vocab_size = 31;
  tiny.model.hidden_size = 16;
  tiny.model.num_hidden_layers = 2;
  tiny.model.intermediate_size = 12;
  tiny.model.max_position_embeddings = 64;
  std::vector<Config> all;
  for (const RopeType type : all_rope_types) {
    Config scaled = tiny;
    RopeScalingConfig& scaling = scaled.model.rope_scaling;
    scaling.type = type;
    if (type != RopeType::none) scaling.factor = 2;
    if (needs_trained_length(type)) scaling.original_max_position_embeddings = 12;
    if (type == RopeType::longrope) scaling.short_factor = scaling.long_factor = {1, 1.5};
    all.push_back(scaled);
    scaled.model.sliding_window = 5;
    all.push_back(scaled);
    scaled.model.layer_types = {LayerType::sliding_attention, LayerType::full_attention};
    scaled.model.sliding_rope_theta = type == RopeType::none ? 0 : 300;
    all.push_back(scaled);
  }
  return all;
}

/// Returns a sequence whose every token has the next one for a label.
Sequences sequence_of(const ModelConfig& model) {
  const bool table = model_spec(model).positions == Positions::learned;
  const std::int64_t tokens = table ? std::min<std::int64_t>(20, model.max_position_embeddings) : 20;
  Sequences sequence = random_sequences(model, 1, tokens, false, 3);
  sequence.labels.assign(sequence.tokens.begin() + 1, sequence.tokens.end());
  sequence.labels.push_back(0);
  return sequence;
}

std::vector<double> nll_of(const ModelConfig& model, const Sequences& sequence) {
  return run_evaluation(model, RunOptions{}, sequence).nll;
}

/// Returns the names and shapes of a model's tensors in a folder, in the order of its parameters.
std::vector<std::string> tensors_of(const ModelConfig& model) {
  std::vector<std::string> names;
  const ParameterTable table = make_parameter_table(model);
  const TensorLocations places = hugging_face_locations(model);
  for (const Parameter& parameter : table.all()) {
    const TensorLocation place = places(parameter);
    names.push_back(parameter.name + " " + place.name + " " + ::testing::PrintToString(place.shape));
  }
  return names;
}

class ConfigSweep : public ::testing::Test {
 protected:
  /// Writes a model and reads it back, if it is valid and has not occurred before.
  void try_it(const Config& given, const std::vector<Setting>& settings) {
    Config config = given;
    try {
      check_model_of_file(config.model, "config");
      model_spec(config.model);
    } catch (const Error&) {
      return;  // not a valid config
    }
    if (!met_.insert(to_yaml(config)).second) return;
    for (const Setting& setting : settings) ++tried_[setting.key->path];
    std::string text;
    try {
      text = write_hugging_face_config(config.model, {.dtype = "float64", .context_length = 64, .ends = {}});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage) << error.what();
      EXPECT_NE(std::string(error.what()).find("model."), std::string::npos) << error.what();
      ++refused_;
      return;
    }
    ++written_;
    const ModelConfig again = parse_hugging_face_config(text, "again").model;
    ASSERT_EQ(tensors_of(again), tensors_of(config.model)) << to_yaml(config);
    const Sequences sequence = sequence_of(config.model);
    const std::vector<double> nll = nll_of(config.model, sequence);
    EXPECT_LE(relative_difference(nll_of(again, sequence), nll), 1e-12) << to_yaml(config) << text;
    if (!file_.is_open()) return;
    file_ << nlohmann::json{{"config", nlohmann::json::parse(text)}, {"tokens", sequence.tokens}, {"nll", nll}}.dump()
          << "\n";
  }

  void SetUp() override {
    if (const char* const path = std::getenv("RINGTRAIN_SWEPT_CONFIGS")) file_.open(path);
  }

  std::set<std::string> met_;
  std::map<std::string, int> tried_;  // by key
  int written_ = 0, refused_ = 0;
  std::ofstream file_;
};

TEST_F(ConfigSweep, WhatIsWrittenIsReadBackAsTheSameModelOrRefused) {
  const std::vector<Setting> settings = all_settings();
  std::uint64_t drawn = 0;
  for (const Architecture architecture : all_architectures) {
    const std::vector<Config> from = beginnings(architecture);
    for (const Config& beginning : from) {
      for (const Setting& setting : settings) {
        Config config = beginning;
        if (set(config, setting)) try_it(config, {setting});
      }
    }
    for (int i = 0; i < 300; ++i) {  // and some of them combined
      const auto draw = [&](const auto& all) { return all[splitmix64(drawn++) % all.size()]; };
      Config config = draw(from);
      const std::vector<Setting> several{draw(settings), draw(settings), draw(settings)};
      if (std::ranges::all_of(several, [&](const Setting& setting) { return set(config, setting); })) {
        try_it(config, several);
      }
    }
  }
  for (const Setting& setting : settings) {
    EXPECT_GT(tried_[setting.key->path], 0) << "no value of " << setting.key->path << " was tried";
  }
  EXPECT_GT(written_, 1000);
  EXPECT_GT(refused_, 1000);
  RecordProperty("written", written_);
  RecordProperty("refused", refused_);
}

}  // namespace
}  // namespace ringtrain::testing
