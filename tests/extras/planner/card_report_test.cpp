// Hardware files from a report of gpu_bench: each measured figure has its place, what one card does not tell is the
// base's, and the emulator's figures are nobody's. The figures here are made up.
#include "extras/planner/card_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/error.h"
#include "tests/support/error_of.h"

namespace ringtrain::testing {
namespace {

using Json = nlohmann::ordered_json;

Json row(const std::string& group, const std::string& name, double value, Json parameters = Json::object()) {
  return {{"group", group}, {"name", name}, {"value", value}, {"unit", ""}, {"parameters", std::move(parameters)}};
}

Json attention(std::int64_t S, std::int64_t D = 128, bool causal = true, std::int64_t G = 16) {
  return {{"causal", causal}, {"D", D}, {"S", S}, {"H", 16}, {"G", G}};
}

class CardReport : public ::testing::Test {
 protected:
  void SetUp() override {
    report = {{"written_by", "ringtrain gpu_bench"}, {"program", "gpu_bench"}, {"emulated", false}, {"quick", false}};
    report["machine"] = {{"GPU", "A card"}};
    report["rows"] = {row("machine", "device-to-device copy", 2.5), row("machine", "matrix product forward", 700),
                      row("machine", "matrix product input gradient", 500),
                      row("machine", "matrix product weight gradient", 600)};
    for (const auto& [S, forward] : {std::pair{2048, 400.0}, {8192, 500.0}, {32768, 490.0}}) {
      report["rows"].push_back(row("attention", "forward", forward, attention(S)));
      report["rows"].push_back(row("attention", "backward", 0.8 * forward, attention(S)));
      for (const Json& other : {attention(S, 64), attention(S, 128, false), attention(S, 128, true, 8)}) {
        report["rows"].push_back(row("attention", "forward", 999, other));
        report["rows"].push_back(row("attention", "backward", 999, other));
      }
    }
    base = read_hardware(find_hardware("h100"));
    base.peak_bfloat16 = 1000e12;
  }
  Hardware card() const { return hardware_of_card(base, report.dump(), "report.json"); }
  void refused(ExitCode code, const std::string& part) const {
    const std::string sentence = error_of(code, [&] { card(); });
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("report.json"), std::string::npos) << sentence;
  }
  Json report;
  Hardware base;
};

TEST_F(CardReport, GivesEachFigureItsPlace) {
  const Hardware found = card();
  EXPECT_NE(found.name.find("A card, measured by gpu_bench"), std::string::npos);
  EXPECT_EQ(found.rates, RatesOf::ringtrain);
  EXPECT_DOUBLE_EQ(found.matmul_efficiency, 0.6) << "the middle one of three";
  EXPECT_DOUBLE_EQ(found.memory_bandwidth, 2.5e12);
  EXPECT_DOUBLE_EQ(found.attention_forward_efficiency, 0.5);
  EXPECT_DOUBLE_EQ(found.attention_backward_efficiency, 0.4);
  EXPECT_DOUBLE_EQ(found.attention_share(2048), 0.8);
  EXPECT_DOUBLE_EQ(found.attention_share(8192), 1);
  EXPECT_DOUBLE_EQ(found.attention_share(32768), 0.98);
  EXPECT_DOUBLE_EQ(found.attention_share(512), base.attention_share(512) / base.attention_share(2048) * 0.8);
  EXPECT_EQ(found.peak_bfloat16, base.peak_bfloat16);
  EXPECT_EQ(found.memory_bytes, base.memory_bytes);
  ASSERT_EQ(found.levels.size(), base.levels.size());
  EXPECT_EQ(found.levels[1].bandwidth, base.levels[1].bandwidth);
  EXPECT_EQ(found.node_memory, base.node_memory);
  const std::string text = hardware_yaml(found);
  EXPECT_EQ(hardware_yaml(parse_hardware(text, "card.yaml")), text);
}

TEST_F(CardReport, TakesNoFigureOfTheEmulator) {
  report["emulated"] = true;
  refused(ExitCode::usage, "its figures are the emulator's");
  report.erase("emulated");
  refused(ExitCode::usage, "its figures are the emulator's");
}

TEST_F(CardReport, RefusesWhatLacksAFigure) {
  const Json whole = report;
  report["quick"] = true;
  refused(ExitCode::usage, "--quick");
  report = whole;
  report["rows"].erase(0);
  refused(ExitCode::usage, "no device-to-device copy of machine");
  report = whole;
  report["rows"][1]["value"] = nullptr;
  refused(ExitCode::usage, "matrix product forward of machine has no number");
  report = whole;
  report["rows"][1]["value"] = report["rows"][2]["value"] = report["rows"][3]["value"] = 1200;
  refused(ExitCode::usage, "beyond");
  report = whole;
  for (Json& one : report["rows"]) one["parameters"]["D"] = 64;
  refused(ExitCode::usage, "no causal attention at head size 128");
  report = Json::array();
  refused(ExitCode::data, "is no report of gpu_bench");
  report = {{"program", "gpu_bench"}, {"rows", 3}};
  refused(ExitCode::data, "is no report of gpu_bench");
}

TEST(HardwareYaml, EveryFileOfTheProjectIsWrittenAndReadBackToTheSameValues) {
  for (const std::string& name : hardware_names()) {
    const Hardware hardware = read_hardware(find_hardware(name));
    const std::string text = hardware_yaml(hardware);
    const Hardware again = parse_hardware(text, name);
    EXPECT_EQ(hardware_yaml(again), text) << name;
    EXPECT_EQ(again.rates, hardware.rates) << name;
    EXPECT_EQ(again.host_bandwidth, hardware.host_bandwidth) << name;
    EXPECT_EQ(again.node_memory, hardware.node_memory) << name;
    EXPECT_EQ(again.node_storage_bandwidth, hardware.node_storage_bandwidth) << name;
    EXPECT_EQ(again.attention_blocks.size(), hardware.attention_blocks.size()) << name;
    EXPECT_EQ(again.levels.back().core_bandwidth, hardware.levels.back().core_bandwidth) << name;
  }
}

}  // namespace
}  // namespace ringtrain::testing
