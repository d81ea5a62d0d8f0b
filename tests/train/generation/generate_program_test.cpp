// The built program `generate` as a user meets it: what goes to stdout and what to stderr, prompts from everywhere, and
// one sentence for each command line that cannot be.
#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class GenerateProgram : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    TextPlan plan;
    plan.vocab_size = 257;
    run(tiny(write_tokens("bytes.h5", plan), {"training.steps=1", "model.vocab_size=257", "training.seq_len=64"}),
        "run");
  }
  ChildResult generate(std::vector<std::string> arguments, const std::function<void()>& before_start = {}) const {
    arguments.insert(arguments.begin(), {"--checkpoint", "run", "--max-new-tokens", "12"});
    return run_child("generate", arguments, folder, before_start);
  }
  void expect_refused(const std::vector<std::string>& arguments, const std::string& part) const {
    const ChildResult result = generate(arguments);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err.find("generate: "), 0u) << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n" << result.err;
  }
};

TEST_F(GenerateProgram, PromptsFromEverywhereAreTheSame) {
  std::ofstream(at("prompt.txt"), std::ios::binary) << "abc";
  const ChildResult text = generate({"--prompt", "abc", "--raw"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_FALSE(text.out.empty());
  EXPECT_NE(text.err.find("generate: prompt: 3 tokens in "), std::string::npos) << text.err;
  EXPECT_NE(text.err.find(" tokens/s"), std::string::npos) << text.err;
  EXPECT_EQ(generate({"--prompt-file", "prompt.txt", "--raw"}).out, text.out);
  const std::string path = at("prompt.txt");
  EXPECT_EQ(generate({"-", "--raw"}, [&] { replace_stream(STDIN_FILENO, path.c_str(), O_RDONLY); }).out, text.out);
  std::string ids;
  for (const char byte : text.out) ids += fmt::format("{}{}", ids.empty() ? "" : ",", static_cast<unsigned char>(byte));
  EXPECT_EQ(generate({"--tokens", "97,98,99"}).out, ids + "\n");
  EXPECT_EQ(generate({"--tokens", "97,98,99", "--mesh", "1x3"}).out, ids + "\n");
}

TEST_F(GenerateProgram, OneSentenceForEachCommandLineThatCannotBe) {
  expect_refused({}, "--prompt");
  expect_refused({"--prompt", "a", "--tokens", "1"}, "--prompt");
  expect_refused({"--prompt", ""}, "the prompt is empty");
  expect_refused({"--prompt-file", "nothing"}, "nothing");
  expect_refused({"--prompt", std::string(65, 'x')}, "the model's context is 64");
  expect_refused({"--tokens", "1,257"}, "257 is no token");
  expect_refused({"--prompt", "a", "--mesh", "2x1"}, "--mesh 2x1: must be 1xN");
  expect_refused({"--prompt", "a", "--mesh", "1x0"}, "--mesh 1x0");
  expect_refused({"--prompt", "a", "--device", "cuda"}, "runs on the CPU alone");
  expect_refused({"--prompt", "a", "--stop", ""}, "--stop");
  expect_refused({"--prompt", "a", "--top-p", "0.5"}, "--top-p has no effect");
  expect_refused({"--prompt", "a", "--temprature", "1"}, "did you mean --temperature?");
}

}  // namespace
}  // namespace ringtrain::testing
