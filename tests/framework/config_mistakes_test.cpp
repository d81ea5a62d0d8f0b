// Every class of mistake in a config, with its exact message.
#include "framework/config/config.h"
#include "framework/device.h"
#include "tests/framework/config_text.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/error_of.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

/// Lines of one section, and the message about the first line's key.
struct KeyMistake {
  std::string section, lines, says;
};

void expect_messages(const std::vector<KeyMistake>& mistakes) {
  for (const auto& [section, lines, says] : mistakes) {
    const int line = section == "training" ? 4 : section == "data" ? 6 : 7;
    EXPECT_EQ(complaint(with(section, lines)),
              fmt::format("x.yaml:{}: {}.{}: {}", line, section, lines.substr(0, lines.find(':')), says));
  }
}

/// A whole text, and all messages about it.
struct TextMistake {
  std::string text, says;
  Settings settings = {};
};

void expect_messages(const std::vector<TextMistake>& mistakes) {
  for (const auto& [text, says, settings] : mistakes) EXPECT_EQ(complaint(text, settings), says) << text;
}

/// Returns the rows of a table of config_mistakes.json.
nlohmann::json rows(const char* table) {
  return nlohmann::json::parse(std::ifstream(source_folder() + "/tests/framework/config_mistakes.json")).at(table);
}

TEST(ConfigMistakes, OfAKeyAreNamedWithItsLine) {
  std::vector<KeyMistake> mistakes{
      {"mesh", "layout: " + std::string(200, 'z'),
       "is the text \"" + std::string(77, 'z') + "...\", but must be one of contiguous, striped, zigzag"}};
  for (const auto& row : rows("keys")) mistakes.push_back({row.at("section"), row.at("lines"), row.at("says")});
  EXPECT_EQ(mistakes.size(), 49);
  expect_messages(mistakes);
}

/// A row has the whole text, or the text after the minimal config, or lines of a section.
TEST(ConfigMistakes, OfATextAreAllNamed) {
  std::vector<TextMistake> mistakes;
  for (const auto& row : rows("texts")) {
    const std::string text = row.contains("section") ? with(row.at("section"), row.at("lines"))
                             : row.contains("more")  ? base + row.at("more").get<std::string>()
                                                     : row.at("text").get<std::string>();
    mistakes.push_back({text, row.at("says"), row.value("settings", Settings{})});
  }
  EXPECT_EQ(mistakes.size(), 51);
  expect_messages(mistakes);
}

TEST(ConfigMistakes, OfASettingAreNamed) {
  std::vector<std::pair<std::string, std::string>> mistakes{
      {"data.validation=a\x80", "the byte 0x80 is not UTF-8 text"}};
  for (const auto& row : rows("settings")) mistakes.emplace_back(row.at("setting"), row.at("says"));
  EXPECT_EQ(mistakes.size(), 8);
  for (const auto& [setting, says] : mistakes) {
    EXPECT_EQ(complaint(base, {setting}), fmt::format("--set {}: {}", setting, says));
  }
}

TEST(ConfigMistakes, WhatThisBuildCannotDo) {
#if RINGTRAIN_CUDA
  expect_messages(std::vector<TextMistake>{
      {with("training", "device: cuda\n  dtype: float64"),
       "x.yaml:5: training.dtype: float64 is for training.device cpu; with cuda use bfloat16 or float32"},
  });
#else
  expect_messages(std::vector<KeyMistake>{
      {"training", "device: cuda", "cuda is not in this build; use cpu, or build with cmake --preset cuda"},
  });
#endif
#if !RINGTRAIN_MPI
  EXPECT_EQ(complaint(base, {"mesh.backend=mpi"}),
            "--set mesh.backend=mpi: mpi is not in this build; use threads (or auto), or install libopenmpi-dev "
            "and build from source");
#endif
}

TEST(ConfigMistakes, Bytes) {
  expect_messages(std::vector<TextMistake>{
      {base + "# caf\xe9\n", "x.yaml:3:6: the byte 0xE9 is not UTF-8 text\n  # caf\xe9"},
      {"# \xc0\xaf\n", "x.yaml:1:3: the byte 0xC0 is not UTF-8 text\n  # \xc0\xaf"},
      {"a: " + std::string(5000, '['),
       "x.yaml:1:20: this is nested deeper than 32 levels\n  a: " + std::string(74, '[') + "..."},
  });
}

TEST(Config, AllProblemsAreReportedAtOnceInTheOrderOfTheFile) {
  EXPECT_EQ(complaint("mesh: {data: 0}\nmodel:\n  hidden_size: 250\n  head_dimm: 2\ndata: {train: a}\n", {"x=1"}),
            "x.yaml:1: mesh.data: 0 is out of range; it must be an integer from 1 to 1024\n"
            "x.yaml:3: model.hidden_size: 250 is not divisible by model.num_attention_heads = 4; the nearest values "
            "that are: 248 and 252; or set model.head_dim\n"
            "x.yaml:4: model.head_dimm: unknown key; did you mean model.head_dim?\n"
            "x.yaml: training.seq_len: is required but missing (tokens per sequence)\n"
            "x.yaml: training.steps: is required but missing (optimizer steps; training.epochs (passes over the data) "
            "can be given instead)\n"
            "--set x=1: unknown key");
}

TEST(Config, AFileThatIsNoConfigIsNamed) {
  const auto reading = [](const std::string& path) { return complaint_of([&] { read_config(path, {}); }); };
  const std::string folder = ::testing::TempDir() + "config_test";
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/c.yaml";
  EXPECT_EQ(reading(folder + "/none.yaml"), "cannot open " + folder + "/none.yaml: No such file or directory");
  EXPECT_EQ(reading(folder), folder + ": is a folder, not a config file");
  EXPECT_EQ(reading("/dev/zero"), "cannot open /dev/zero: it is a device, not a file");
  std::ofstream(path) << std::string((1 << 20) + 1, ' ');
  EXPECT_EQ(reading(path), path + ": is larger than 1 MiB, so it is not a config");
  // Nobody could read a line for each of so many mistakes.
  {
    std::ofstream many(path);
    for (int i = 0; i < 80000; ++i) many << "key" << i << ": 1\n";
  }
  const std::string message = reading(path);
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 30) << message.substr(0, 2000);
  EXPECT_NE(message.find(path + ":1: key0: unknown key"), std::string::npos);
  EXPECT_NE(message.find("more problems; fix these first"), std::string::npos);
  std::ofstream(path) << std::string(500'000, 'k') << ": 1\n";
  EXPECT_LT(reading(path).size(), 1000u);
  std::ofstream(path) << "";
  EXPECT_TRUE(reading(path).starts_with(path + ": the file holds no keys\n")) << reading(path);
  std::ofstream(path) << base;
  EXPECT_NO_THROW(read_config(path, {}));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ringtrain::testing
