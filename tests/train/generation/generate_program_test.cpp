// The built program `generate` as a user meets it: what goes to stdout and what to stderr, prompts from everywhere, and
// one sentence for each command line that cannot be.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/support/paths.h"
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
  static std::vector<std::string> split(std::string ids) {
    std::ranges::replace(ids, ',', ' ');
    std::istringstream words(ids);
    return {std::istream_iterator<std::string>(words), {}};
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
  std::ofstream(at("ids.txt")) << "97 98\n\t99\n";
  EXPECT_EQ(generate({"--tokens-file", "ids.txt"}).out, ids + "\n");
  EXPECT_EQ(
      generate({"--tokens-file", "-"}, [path = at("ids.txt")] { replace_stream(STDIN_FILENO, path.c_str(), O_RDONLY); })
          .out,
      ids + "\n");
}

TEST_F(GenerateProgram, AStopTokenEndsTheTextAndIsNotPrinted) {
  const std::vector<std::string> drawn{"--tokens", "97,98,99", "--temperature", "1", "--seed", "5"};
  const auto with = [&](const std::string& stops) {
    std::vector<std::string> arguments = drawn;
    arguments.insert(arguments.end(), {"--stop-token", stops});
    return generate(arguments);
  };
  const std::vector<std::string> ids = split(generate(drawn).out);
  const auto stop = std::ranges::find_if(ids, [&](const std::string& id) { return id != ids[0]; });
  ASSERT_NE(stop, ids.end());
  const ChildResult stopped = with("256," + *stop);
  EXPECT_EQ(split(stopped.out), std::vector(ids.begin(), stop));
  EXPECT_NE(stopped.err.find("the document ended"), std::string::npos) << stopped.err;
  EXPECT_EQ(with(ids[0]).out, "\n");
}

TEST_F(GenerateProgram, OneSentenceForEachCommandLineThatCannotBe) {
  expect_refused({}, "--prompt");
  expect_refused({"--prompt", "a", "--tokens", "1"}, "--prompt");
  expect_refused({"--prompt", ""}, "the prompt is empty");
  expect_refused({"--prompt-file", "nothing"}, "nothing");
  expect_refused({"--prompt", std::string(65, 'x')}, "the model's context is 64");
  expect_refused({"--tokens", "1,257"}, "257 is no token");
  expect_refused({"--prompt", "a", "--tokens-file", "ids"}, "--tokens-file");
  expect_refused({"--chat", "chat.json"}, "--chat is gone: `python -m ringtrain_data chat`");
  expect_refused({"--tokens-file", "nothing"}, "nothing");
  std::ofstream(at("empty")) << " \n";
  expect_refused({"--tokens-file", "empty"}, "--tokens-file empty: it holds no token id");
  std::ofstream(at("word")) << "1 2\n1,2";
  expect_refused({"--tokens-file", "word"}, "--tokens-file word, id 3: \"1,2\" is no token id");
  std::ofstream(at("high")) << "1 257";
  expect_refused({"--tokens-file", "high"}, "--tokens-file high, id 2: 257 is no token of this model");
  std::ofstream(at("negative")) << "-1";
  expect_refused({"--tokens-file", "negative"}, "--tokens-file negative, id 1: -1 is no token of this model");
  expect_refused({"--prompt", "a", "--stop-token", "5,257"}, "--stop-token: 257 is no token of this model");
  expect_refused({"--prompt", "a", "--stop-token", "x"}, "--stop-token");
  expect_refused({"--prompt", "a", "--mesh", "2x1"}, "--mesh 2x1: must be 1xN");
  expect_refused({"--prompt", "a", "--mesh", "1x0"}, "--mesh 1x0");
  expect_refused({"--prompt", "a", "--mesh", "1x1024"}, "at most 64 positions");
  expect_refused({"--prompt", "a", "--mesh", "1x13"}, "at most 12 positions");
  expect_refused({"--prompt", "a", "--device", "gpu"}, "--device");
  if (!built_with_cuda) expect_refused({"--prompt", "a", "--device", "cuda"}, "was built without CUDA");
  expect_refused({"--prompt", "a", "--dtype", "float16"}, "--dtype");
  expect_refused({"--prompt", "a", "--stop", ""}, "--stop");
  expect_refused({"--prompt", "a", "--top-p", "0.5"}, "--top-p has no effect");
  expect_refused({"--prompt", "a", "--temprature", "1"}, "did you mean --temperature?");
}

TEST_F(GenerateProgram, AnEndlessPromptIsRefusedAtOnce) {
  const ChildResult result = generate({"-"}, [] {
    replace_stream(STDIN_FILENO, "/dev/zero", O_RDONLY);
    limit(RLIMIT_CPU, 20);
  });
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_EQ(result.err,
            "generate: -: more than 1048576 bytes came, and no prompt of so many fits into the model's context\n");
  EXPECT_LT(result.peak_resident_bytes, std::int64_t{100} << 20);
}

/// A text of which each token costs more than the one before it, until its CPU time is over.
TEST_F(GenerateProgram, OutputThatCannotBeWrittenEndsItAtOnce) {
  const std::string model = source_folder() + "/tests/models/folders/llama";
  std::filesystem::create_directory(at("model"));
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy(model + "/" + name, at("model/") + name);
  }
  nlohmann::json config = nlohmann::json::parse(content_of(at("model/config.json")));
  config["max_position_embeddings"] = 200000;
  config["eos_token_id"] = nullptr;
  std::ofstream(at("model/config.json")) << config;
  int reader_gone[2];
  ASSERT_EQ(::pipe(reader_gone), 0);
  ::close(reader_gone[0]);
  const auto expect_ended = [&](const char* what, const std::function<void()>& replace, const char* why) {
    for (const char* mesh : {"1x1", "1x2"}) {
      const ChildResult result = run_child(
          "generate", {"--checkpoint", "model", "--tokens", "1,2", "--max-new-tokens", "199000", "--mesh", mesh},
          folder, [&] {
            limit(RLIMIT_CPU, 20);
            replace();
          });
      EXPECT_EQ(result.code, 2) << what;
      EXPECT_NE(result.err.find("cannot write the output to stdout: "), std::string::npos) << result.err;
      EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
    }
  };
  expect_ended(
      "full", [] { replace_stream(STDOUT_FILENO, "/dev/full", O_WRONLY); }, "No space left on device");
  expect_ended(
      "closed", [] { ::close(STDOUT_FILENO); }, "Bad file descriptor");
  expect_ended(
      "a pipe that nobody reads", [&] { ::dup2(reader_gone[1], STDOUT_FILENO); }, "Broken pipe");
  ::close(reader_gone[1]);
}

}  // namespace
}  // namespace ringtrain::testing
