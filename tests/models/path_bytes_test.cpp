// A folder whose name is not UTF-8, which JSON cannot contain: results there are still written, with these bytes
// spelled out, and requests that need the exact path are refused before any work.
#include <fstream>

#include "framework/config/read_config.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class PathBytes : public TrainTest {
 protected:
  static constexpr const char* latin = "Mod\xe8le";

  void SetUp() override {
    TrainTest::SetUp();
    const std::string data = write_tokens("text.h5", {.validation_documents = 20});
    std::ofstream(at("run.yaml")) << to_yaml(tiny(data, {"training.steps=2", "training.global_batch_size=2"}));
    fs::create_directory(at(latin));
    expect("train", {"--config", "run.yaml", "--output", in("run")});
  }
  /// Returns a path of the folder.
  static std::string in(const std::string& name) { return std::string(latin) + "/" + name; }
  void expect(const std::string& program, const std::vector<std::string>& arguments, int code = 0,
              const std::string& part = "") const {
    const ChildResult result = run_child(program, arguments, folder);
    EXPECT_EQ(result.code, code) << program << ": " << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }
  nlohmann::json json(const std::string& name) const { return nlohmann::json::parse(content_of(at(name))); }
};

TEST_F(PathBytes, AreSpelledOutInResults) {
  const std::vector<std::string> scores{"--data",          "text.h5", "--context-lengths", "16",
                                        "--target-tokens", "8",       "--target-blocks",   "4"};
  const auto evaluate = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), scores.begin(), scores.end());
    expect("evaluate", arguments);
  };
  evaluate({"--checkpoint", in("run"), "--output", "e.json", "--per-token", "t.jsonl"});
  const std::string shown = json("e.json")["checkpoint"];
  EXPECT_NE(shown.find(R"(Mod\xe8le/run/checkpoints/step-00000002)"), std::string::npos) << shown;
  EXPECT_NE(content_of(at("t.jsonl")).find(R"(Mod\\xe8le)"), std::string::npos);
  evaluate({"--checkpoint", in("run"), "--against", in("run"), "--output", in("a.json")});
  EXPECT_TRUE(nlohmann::json::accept(content_of(at(in("a.json")))));

  expect("check", {"--config", "run.yaml", "--keep", "--dump", in("dump"), "--output", "c.json"});
  EXPECT_EQ(json("c.json")["dump"], R"(Mod\xe8le/dump)");
  expect("plan", {"--config", "run.yaml", "--output", in("plan.json")});
  expect("export", {"--checkpoint", in("run"), "--output", in("model")});
  expect("generate", {"--checkpoint", in("model"), "--tokens", "1,2", "--max-new-tokens", "2"});
}

TEST_F(PathBytes, OfABaseAreRefusedBeforeTheFirstStep) {
  expect("export", {"--checkpoint", in("run"), "--output", in("model")});
  for (const std::string base : {"run", "model"}) {
    expect("train",
           {"--config", "run.yaml", "--set", "lora.rank=2", "--set", "checkpoint.on_failure=warn", "--init-from",
            in(base), "--output", "lora"},
           2, "this path is not UTF-8: rename it");
    EXPECT_FALSE(fs::exists(at("lora")));
  }
  // Adapters themselves may be there.
  expect("export", {"--checkpoint", in("run"), "--output", "model"});
  expect("train", {"--config", "run.yaml", "--set", "lora.rank=2", "--init-from", "model", "--output", in("lora")});
  expect("export", {"--checkpoint", in("lora"), "--output", in("peft")});
  expect("generate", {"--checkpoint", in("peft"), "--tokens", "1,2", "--max-new-tokens", "2"});
}

}  // namespace
}  // namespace ringtrain::testing
