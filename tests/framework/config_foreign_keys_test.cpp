// Names of other projects: docs/coming-from.md, line by line, and the few that are accepted unchanged.
#include <fstream>
#include <regex>

#include "framework/config/config.h"
#include "framework/config/config_schema.h"
#include "framework/text/foreign_keys.h"
#include "tests/framework/config_text.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

/// Returns the words of a text that are in backquotes.
std::vector<std::string> quoted_words(const std::string& text) {
  static const std::regex quoted("`([a-z_0-9.]+)[^`]*`");
  std::vector<std::string> words;
  for (std::sregex_iterator at(text.begin(), text.end(), quoted); at != std::sregex_iterator(); ++at) {
    words.push_back((*at)[1]);
  }
  return words;
}

TEST(ForeignKeys, EachNameOfThePageIsHintedAtAsThePageHasIt) {
  std::ifstream page(source_folder() + "/docs/coming-from.md");
  int names = 0;
  for (std::string line; std::getline(page, line);) {
    const std::size_t middle = line.find(" | ", 2);
    if (!line.starts_with("| `") || line.find("**accepted**: ") < line.find("`lora.rank`") || middle == line.npos ||
        line.find("accepted** in") != line.npos || line.find("warmup_ratio") != line.npos ||
        line.find("`epochs`") != line.npos) {
      continue;
    }
    const std::string key = quoted_words(line.substr(middle)).front();
    for (const std::string& name : quoted_words(line.substr(0, middle))) {
      if (name == "bf16" || name == "packing") continue;  // the first is a value, the second a key of ours
      EXPECT_TRUE(complaint(base + name + ": 1\n")
                      .starts_with("x.yaml:3: " + name + ": unknown key; did you mean " + key + "?"))
          << name;
      ++names;
    }
  }
  EXPECT_GT(names, 50);
}

TEST(ForeignKeys, NoneIsCalledLikeAKeyOfOurs) {
  for (const ConfigKey& key : config_keys()) {
    const std::string name = key.path.substr(key.path.rfind('.') + 1);
    const ForeignKey* const meant = foreign_key(name);
    EXPECT_TRUE(meant == nullptr || meant->key == key.path) << name << " means " << meant->key;
  }
  EXPECT_EQ(foreign_key("beta1")->key, "optimizer.betas");  // also the end of adam_beta1
  for (const char* unknown : {"", "lora"}) EXPECT_EQ(foreign_key(unknown), nullptr);
}

TEST(ForeignKeys, PeftsNamesAreOurs) {
  const Config config =
      parse_config(with("lora", "r: 8\n  lora_alpha: 32\n  target_modules: all-linear"), "x.yaml", {});
  EXPECT_EQ(config.model.lora.rank, 8);
  EXPECT_EQ(config.model.lora.alpha, 32);
  EXPECT_EQ(config.model.lora.targets.size(), 7u);
  const Config again = parse_config(to_yaml(config), "x.yaml", {});
  EXPECT_EQ(again.model.lora, config.model.lora);
  EXPECT_EQ(to_yaml(config).find("lora_alpha"), std::string::npos);
  EXPECT_EQ(complaint(with("lora", "r: 8\n  rank: 4")), "x.yaml:8: lora.rank: is given twice; the first is on line 7");
  EXPECT_EQ(complaint(with("lora", "lora_alpha: 32")),
            "x.yaml: lora.rank: is missing, so there would be no adapters; give it, e.g. rank: 8");
}

TEST(ForeignKeys, Bf16IsBfloat16) {
  EXPECT_EQ(parse_config(with("training", "dtype: bf16"), "x.yaml", {}).training.dtype, DType::bfloat16);
}

TEST(ForeignKeys, EpochsAreStepsThatTheProgramCounts) {
  const std::string text = "training: {seq_len: 64, epochs: 2.5}\ndata: {train: a.h5}\n";
  const ConfigLookup lookup{.steps = [](const Config& config, double epochs) {
    EXPECT_EQ(config.training.seq_len, 64);
    return static_cast<std::int64_t>(10 * epochs);
  }};
  const auto read = [&](const Settings& settings) {
    return parse_config(text, "x.yaml", settings, ConfigUse::run, {}, lookup);
  };
  EXPECT_EQ(read({"lr_scheduler.warmup_ratio=0.2"}).lr_scheduler.warmup_steps, 5);
  EXPECT_EQ(read({}).training.steps, 25);
  EXPECT_EQ(to_yaml(read({})).find("epochs:"), std::string::npos);
  EXPECT_EQ(read({"training.steps=7"}).training.steps, 7);  // the last one counts
  EXPECT_EQ(complaint(text),
            "x.yaml:1: training.epochs: depends on files that this program does not read; give "
            "training.steps instead");
  EXPECT_EQ(complaint(with("training", "epochs: 2")),
            "x.yaml:4: training.steps: is given twice; the first is on line 3");
}

TEST(ForeignKeys, AWarmupRatioIsAShareOfTheStepsRoundedUp) {
  const auto warmup = [](const std::string& ratio, const Settings& settings = {}) {
    return parse_config(with("lr_scheduler", "warmup_ratio: " + ratio), "x.yaml", settings).lr_scheduler.warmup_steps;
  };
  EXPECT_EQ(warmup("0.25"), 3);  // of 10 steps, as in transformers' get_warmup_steps
  EXPECT_EQ(warmup("0"), 0);
  EXPECT_EQ(warmup("0.25", {"training.steps=100"}), 25);
  EXPECT_EQ(warmup("0.25", {"lr_scheduler.warmup_steps=7"}), 7);  // the last one counts
  EXPECT_EQ(complaint(with("lr_scheduler", "warmup_ratio: 2")),
            "x.yaml:7: lr_scheduler.warmup_ratio: 2 is out of range; it must be a number in [0, 1]");
  EXPECT_EQ(complaint(with("lr_scheduler", "warmup_ratio: 0.1\n  warmup_steps: 4")),
            "x.yaml:8: lr_scheduler.warmup_steps: is given twice; the first is on line 7");
}

}  // namespace
}  // namespace ringtrain::testing
