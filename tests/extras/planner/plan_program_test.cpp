// The program `plan`: the parts of plan.json on which scripts rely, and refusals, each with code 2 and a message.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

class PlanProgram : public FolderTest {
 protected:
  struct Result {
    int code;
    std::string text;
  };
  Result run(const std::string& arguments) const {
    const std::string command =
        "cd '" + source_folder() + "' && '" + binary_folder() + "/plan' " + arguments + " >'" + at("out") + "' 2>&1";
    const int status = std::system(command.c_str());
    std::ifstream out(at("out"));
    return {WEXITSTATUS(status), {std::istreambuf_iterator<char>(out), {}}};
  }
  void refused(const std::string& arguments, const std::string& part) const {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 2) << arguments << "\n" << result.text;
    EXPECT_NE(result.text.find(part), std::string::npos) << result.text;
  }
};

TEST_F(PlanProgram, WritesWhatScriptsRelyOn) {
  const std::string output = "--output '" + at("plan.json") + "'";
  const Result result = run("--config configs/long_ctx.yaml --mesh 1x2 --total-tokens 1e6 " + output);
  ASSERT_EQ(result.code, 0) << result.text;
  std::ifstream file(at("plan.json"));
  const json plan = json::parse(file);
  for (const char* field : {"step_seconds", "tokens_per_second", "mfu", "flops_per_step", "hours", "device_hours"}) {
    EXPECT_GT(plan.at(field).get<double>(), 0) << field;
  }
  EXPECT_GE(plan.at("seconds").at("ring_wait").get<double>(), 0);
  double tags = 0;
  const json& rank = plan.at("memory").at(0);
  for (const char* tag : {"weights", "gradients", "optimizer", "activations", "ring", "workspace", "checkpoint"}) {
    tags += rank.at(tag).get<double>();
  }
  EXPECT_EQ(tags, rank.at("total").get<double>());
  EXPECT_EQ(plan.at("tokens").get<double>(), 31 * 32768.0);  // whole steps
  EXPECT_NEAR(plan.at("device_hours").get<double>(), 2 * plan.at("hours").get<double>(), 1e-12);
  EXPECT_EQ(run("--config configs/long_ctx.yaml --search " + output).code, 0);  // an earlier plan is replaced
  std::ifstream again(at("plan.json"));
  const json searched = json::parse(again);
  EXPECT_GT(searched.at("search").size(), 3u);
  EXPECT_TRUE(holds(run("--config configs/long_ctx_gpu.yaml --hardware h100").text, "the disk has 3 at a time"));
  EXPECT_EQ(searched.at("search").at(0).at("fits"), true);
}

TEST_F(PlanProgram, IsNotBroughtDownByWhatIsAtItsOutput) {
  std::ofstream(at("deep.json")) << R"({"kind":)" << std::string(200'000, '[') << std::string(200'000, ']') << "}";
  refused("--config configs/tiny.yaml --output '" + at("deep.json") + "'", "deep.json");
}

TEST_F(PlanProgram, RefusesWhatItCannotPlan) {
  refused("", "--config is required");
  refused("--config configs/tiny.yaml --hardware h20o", "did you mean h20?");
  refused("--config configs/tiny.yaml --hardware nowhere.yaml", "nowhere.yaml");
  refused("--config configs/tiny.yaml --mesh 65537x1", "together at most 65536 ranks");
  refused("--config configs/tiny.yaml --mesh 2by2", "--mesh 2by2: must be DATAxSEQUENCE");
  refused("--config configs/tiny.yaml --mesh 5x1", "is not divisible by mesh.data * training.micro_batch_size = 5");
  refused("--config configs/tiny.yaml --mesh 1x128", "128 ranks is too long: a plan simulates at most 64");
  refused("--config configs/tiny.yaml --total-tokens many", "--total-tokens: many must be a finite number");
  refused("--config configs/tiny.yaml --total-tokens inf", "must be a finite number");
  refused("--config configs/tiny.yaml --published", "--published");
  refused("--config configs/tiny.yaml --devices 4", "--search");
  refused("--config configs/tiny.yaml --hardware h200 --set training.dtype=float64", "peak_flops for float64");
  refused("--measure", "--measure needs --output");
  for (const char* number : {"nan", "inf", "-1"}) {
    refused(std::string("--config configs/tiny.yaml --document-tokens ") + number, "must be a finite number");
  }
  refused("--config configs/tiny.yaml --total-tokens 1e300", "from 1 to 1e+18");
  refused("--config configs/tiny.yaml --set data.packing=concat --document-tokens 9",
          "a token attends to all documents before it");
  refused("--config configs/tiny.yaml --search --devices 0", "0 is not a whole number from 1 to");
  std::ofstream(at("other.json")) << "{}";
  refused("--config configs/tiny.yaml --output '" + at("other.json") + "'", "is not a plan");
}

TEST_F(PlanProgram, TheFlagsOfASearchGiveItsPlan) {
  const std::string gpu = "--config configs/long_ctx_gpu.yaml --hardware h100 --output '" + at("plan.json") + "' ";
  const auto plan = [&](const std::string& arguments) {
    const Result result = run(gpu + arguments);
    EXPECT_EQ(result.code, 0) << result.text;
    return json::parse(std::ifstream(at("plan.json")));
  };
  const json searched = plan("--search --devices 4 --total-tokens 1e9");
  const json again = plan(searched.at("flags"));  // with the steps of 1e9 tokens
  for (const char* field : {"mesh", "step_seconds", "tokens", "hours", "memory_needed"}) {
    EXPECT_EQ(again.at(field), searched.at(field)) << field;
  }
  EXPECT_GE(again.at("tokens").get<double>(), 1e9);
  EXPECT_EQ(again.at("mesh").at("data").get<int>() * again.at("mesh").at("sequence").get<int>(), 4);
}

TEST_F(PlanProgram, WhatDoesNotFitHasACodeAndAWayOut) {
  const std::string output = "--output '" + at("plan.json") + "'";
  for (const char* how : {"", "--search --devices 2 "}) {
    const Result result = run("--config configs/long_ctx_gpu.yaml --hardware h100 --set training.seq_len=8388608 " +
                              std::string(how) + output);
    EXPECT_EQ(result.code, 2) << result.text;
    for (const char* part : {"training.shard: weights", "it would fit on", "memory: it needs"}) {
      EXPECT_NE(result.text.find(part), std::string::npos) << result.text;
    }
    EXPECT_EQ(result.text.find("device hours,"), std::string::npos) << result.text;
    std::ifstream file(at("plan.json"));
    const std::string text(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(text.find("\"hours\""), std::string::npos);
  }
}

TEST_F(PlanProgram, PlansAConfigWhoseModelIsElsewhere) {
  const auto call = [&](const std::string& program, const std::string& arguments) {
    const std::string command = "cd '" + folder + "' && '" + binary_folder() + "/" + program + "' " + arguments;
    ASSERT_EQ(std::system((command + " >'" + at("out") + "' 2>&1").c_str()), 0) << command;
  };
  call("prepare", "--synthetic recall --documents 40 --length 400 --output corpus.h5");
  call("train", "--config '" + source_folder() + "/configs/tiny.yaml' --output run --stop-after 1");
  std::ofstream(at("tuned.yaml")) << "model: {from: run}\ndata: {train: none.h5}\n"
                                  << "training: {seq_len: 64, steps: 10}\n";
  call("plan", "--config tuned.yaml --output plan.json");
  std::ifstream file(at("plan.json"));
  EXPECT_EQ(json::parse(file).at("parameters"), 26816);
  EXPECT_NE(
      run("--config '" + at("tuned.yaml") + "' --set model.from='" + at("run") + "'").text.find("beyond the 64 tokens"),
      std::string::npos);
  EXPECT_NE(run("--config configs/tiny.yaml --set model.max_position_embeddings=32").text.find("beyond the 32 tokens"),
            std::string::npos);
  refused("--config '" + at("tuned.yaml") + "' --set model.from=nowhere", "nowhere");
}

TEST_F(PlanProgram, PlansAModelOfWhichThereIsNoMoreThanItsConfig) {
  std::filesystem::create_directory(at("smollm2"));
  const json published = json::parse(std::ifstream(source_folder() + "/tests/golden/published_configs.json"));
  std::ofstream(at("smollm2/config.json")) << published.at("SmolLM2-135M").at("config");
  std::ofstream(at("tuned.yaml"))
      << "model: {from: smollm2}\ndata: {train: none.h5}\ntraining: {seq_len: 64, steps: 10}\n";
  const std::string from_folder = "cd '" + folder + "' && '" + binary_folder() + "/";
  ASSERT_EQ(std::system((from_folder + "plan' --config tuned.yaml --output plan.json >out 2>&1").c_str()), 0);
  EXPECT_EQ(json::parse(std::ifstream(at("plan.json"))).at("parameters"), 134515008);
  // Beyond its 8,192 tokens, and with the warning of train, whether requested or found by the search.
  for (const char* length : {"8192", "16384"}) {
    const std::string asked = "--config '" + at("tuned.yaml") + "' --hardware h200 --set training.seq_len=" + length +
                              " --set model.from='" + at("smollm2") + "'";
    const std::string said = run(asked).text, scaled = run(asked + " --set model.rope_theta=1e6").text;
    EXPECT_NE(said.find("caution: beyond the 8192 tokens"), std::string::npos) << said;
    EXPECT_EQ(scaled.find("caution: beyond"), std::string::npos) << scaled;
  }
}

}  // namespace
}  // namespace ringtrain::testing
