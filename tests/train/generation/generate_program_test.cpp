// The built program `generate` for its users: what it prints to stdout and to stderr, prompts from all sources, and one
// message for each invalid command line.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
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
    run(tiny(write_tokens("bytes.h5", {.vocab_size = 257}),
             {"training.steps=1", "model.vocab_size=257", "training.seq_len=64"}),
        "run");
  }
  ChildResult generate(const std::vector<std::string>& arguments,
                       const std::function<void()>& before_start = {}) const {
    return run_child("generate", joined({"--checkpoint", "run", "--max-new-tokens", "12"}, arguments), folder,
                     before_start);
  }
  static std::vector<std::string> split(std::string ids) {
    std::ranges::replace(ids, ',', ' ');
    std::istringstream words(ids);
    return {std::istream_iterator<std::string>(words), {}};
  }
};

TEST_F(GenerateProgram, PromptsFromEverywhereAreTheSame) {
  std::ofstream(at("prompt.txt"), std::ios::binary) << "abc";
  const ChildResult text = generate({"--prompt", "abc", "--raw"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_FALSE(text.out.empty());
  EXPECT_TRUE(holds(text.err, "generate: prompt: 3 tokens in "));
  EXPECT_TRUE(holds(text.err, " tokens/s"));
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
  EXPECT_TRUE(holds(stopped.err, "the document ended"));
  EXPECT_EQ(with(ids[0]).out, "\n");
}

TEST_F(GenerateProgram, OneSentenceForEachCommandLineThatCannotBe) {
  const auto table =
      nlohmann::json::parse(content_of(source_folder() + "/tests/train/generation/generate_refusals.json"));
  for (const auto& [name, text] : table.at("files").items()) std::ofstream(at(name)) << text.get<std::string>();
  const auto expect = [&](const std::vector<std::string>& arguments, const std::string& part) {
    const ChildResult result = generate(arguments);
    expect_refused(result, 2, {part});
    EXPECT_TRUE(result.err.starts_with("generate: ") && result.err.find('\n') == result.err.size() - 1) << result.err;
  };
  ASSERT_EQ(table.at("refused").size(), 27U);
  for (const auto& row : table.at("refused")) expect(row.at("arguments"), row.at("sentence"));
  expect({"--prompt", std::string(65, 'x')}, "the model's context is 64");
  if (!built_with_cuda) expect({"--prompt", "a", "--device", "cuda"}, "was built without CUDA");
}

TEST_F(GenerateProgram, AnEndlessPromptIsRefusedAtOnce) {
  const ChildResult result = generate({"-"}, [] {
    replace_stream(STDIN_FILENO, "/dev/zero", O_RDONLY);
    limit(RLIMIT_CPU, 20);
  });
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_EQ(result.err,
            "generate: -: the standard input has more than 1048576 bytes, but no prompt of that size fits into the "
            "model's context\n");
  EXPECT_LT(result.peak_resident_bytes, std::int64_t{100} << 20);
}

/// A text whose tokens become more expensive, until its CPU time is used up.
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
      EXPECT_TRUE(holds(result.err, "cannot write the output to stdout: "));
      EXPECT_TRUE(holds(result.err, why));
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
