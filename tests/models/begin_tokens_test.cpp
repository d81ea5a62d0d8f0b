// The tokens that a tokenizer itself adds before and after a text, from prepare to generate, through the programs. The
// correct ids are those of AutoTokenizer (tests/golden/make_begin_tokens.py).
#include <algorithm>
#include <fstream>

#include "data/token_manifest.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

class BeginTokens : public TrainTest {
 protected:
  const json golden = json::parse(content_of(source_folder() + "/tests/golden/begin_tokens.json"));

  /// Writes the tokenizer of a golden case, and returns its path.
  std::string tokenizer_of(const json& one) const {
    json file = json::parse(
        content_of(source_folder() + "/tests/tokenizers/tiny/" + one["tokenizer"].get<std::string>() + ".json"));
    file["post_processor"] = one["post_processor"];
    std::ofstream(at("tokenizer.json")) << file.dump();
    return at("tokenizer.json");
  }
  ChildResult prepare(const std::string& input, const std::vector<std::string>& more = {}) const {
    for (const char* name : {"out.h5", "out.h5.manifest.json", "out.h5.tokenizer"}) fs::remove_all(at(name));
    std::vector<std::string> arguments{"--input",  input,    "--tokenizer",           "tokenizer.json",
                                       "--output", "out.h5", "--validation-fraction", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ChildResult result = run_child("prepare", arguments, folder);
    EXPECT_EQ(result.code, 0) << result.err;
    return result;
  }
  /// Returns the documents of out.h5, sorted.
  std::vector<Ids> documents() const {
    const auto file = TokenFile::open(at("out.h5"));
    std::vector<Ids> found;
    const auto offsets = file->document_offsets();
    for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
      file->read(offsets[d], found.emplace_back(offsets[d + 1] - offsets[d]));
    }
    std::ranges::sort(found);
    return found;
  }
};

TEST_F(BeginTokens, PrepareWritesTheIdsOfAutoTokenizerWithTheEndOfADocument) {
  fs::create_directory(at("texts"));
  std::ofstream lines(at("texts.jsonl"));
  for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
    std::ofstream(at(fmt::format("texts/{}.txt", i))) << golden["texts"][i].get<std::string>();
    lines << json{{"text", golden["texts"][i]}}.dump() << "\n";
  }
  lines.close();
  for (const json& one : golden["cases"]) {
    SCOPED_TRACE(one.dump());
    const auto tokenizer = load_tokenizer(tokenizer_of(one));
    const Ids with_end = one["ids"][0], plain = tokenizer->encode(golden["texts"][0].get<std::string>());
    const bool begins = with_end.front() != plain.front(), ends = with_end.back() != plain.back();
    const std::int32_t end =
        tokenizer->find_special(one["tokenizer"] == "byte_level" ? "<|endoftext|>" : "</s>").value();
    std::vector<Ids> expected;
    for (Ids ids : one["ids"]) {
      if (!ends) ids.push_back(end);
      expected.push_back(std::move(ids));
    }
    std::ranges::sort(expected);
    for (const char* input : {"texts", "texts.jsonl"}) {
      const ChildResult reported = prepare(input);
      EXPECT_EQ(documents(), expected) << input;
      EXPECT_EQ(reported.out.find("documents begin") != std::string::npos, begins) << reported.out;
      EXPECT_EQ(TokenFile::open(at("out.h5"))->document_start(), begins ? with_end.front() : -1);
    }
    prepare("texts", {"--document-start", "none"});
    for (Ids& ids : expected) {
      if (begins) ids.erase(ids.begin());
    }
    std::ranges::sort(expected);
    EXPECT_EQ(documents(), expected);
    EXPECT_EQ(TokenFile::open(at("out.h5"))->document_start(), -1);
  }
}

TEST_F(BeginTokens, AManifestNamesOneTokenOfTheVocabularyOrNone) {
  std::ofstream(at("a.txt")) << "a text";
  tokenizer_of(golden["cases"][4]);
  prepare("a.txt");
  const auto with = [&](std::optional<std::vector<std::int64_t>> start) {
    TokenManifest manifest = read_manifest(at("out.h5"));
    manifest.document_start = std::move(start);
    std::ofstream(manifest_path(at("out.h5"))) << to_json(manifest);
    return TokenFile::open(at("out.h5"))->document_start();
  };
  EXPECT_EQ(with(std::nullopt), std::nullopt);
  EXPECT_EQ(with(std::vector<std::int64_t>{}), -1);
  EXPECT_EQ(with(std::vector<std::int64_t>{699}), 699);
  for (const std::vector<std::int64_t>& wrong : {std::vector<std::int64_t>{700}, {1, 2}}) {
    expect_error(ExitCode::data, "says that document_start is", [&] { with(wrong); });
  }
}

TEST_F(BeginTokens, PostProcessorsThatAreNotDoneAreRefused) {
  json one = golden["cases"][4];
  json& post = one["post_processor"];
  const auto refusal = [&] { return error_of(ExitCode::data, [&] { load_tokenizer(tokenizer_of(one)); }); };
  post["special_tokens"]["<s>"]["ids"] = {700};
  EXPECT_NE(refusal().find("has the id 700"), std::string::npos) << refusal();
  post["special_tokens"]["<s>"]["ids"] = {1, 2};
  EXPECT_NE(refusal().find("several tokens before or after a text"), std::string::npos) << refusal();
  post["special_tokens"].erase("<s>");
  EXPECT_NE(refusal().find("has no <s>"), std::string::npos) << refusal();
  post["single"] = "$A";
  EXPECT_NE(refusal().find("has no"), std::string::npos) << refusal();
  post = {{"type", "RobertaProcessing"}, {"cls", {"<s>", 1}}, {"sep", {"</s>", 700}}};
  EXPECT_NE(refusal().find("token '</s>' has the id 700"), std::string::npos) << refusal();
  post["sep"] = {"</s>"};
  EXPECT_NE(refusal().find("tokenizer.json"), std::string::npos) << refusal();
  post = {{"type", "OtherProcessing"}};
  EXPECT_NE(refusal().find("OtherProcessing"), std::string::npos) << refusal();
}

TEST_F(BeginTokens, APromptBeginsAsTheTokenizerBeginsATextAndOnce) {
  const json& one = golden["cases"][4];
  TextPlan plan;
  plan.vocab_size = 701;
  run(tiny(write_tokens("pieces.h5", plan),
           {"training.steps=1", "model.vocab_size=701", "model.initializer_range=0.4"}),
      "run");
  GenerationOptions options;
  options.checkpoint = at("run");
  options.max_new_tokens = 8;
  std::vector<std::string> remarks;
  const auto said = [&] {
    GenerationSummary made;
    const std::string all = generated_text(options, &made);
    remarks = made.remarks;
    return std::pair{all, made.rates.prompt_tokens};
  };
  const auto said_as_text = [&](const Ids& prompt) {
    options.tokenizer = options.prompt = "";
    options.begin_token.reset();
    options.tokens.assign(prompt.begin(), prompt.end());
    const std::string ids = said().first;
    options.tokens.clear();
    options.tokenizer = tokenizer_of(one);
    const auto tokenizer = load_tokenizer(options.tokenizer);
    std::string text;
    for (std::size_t at = 0; at < ids.size();
         at = ids.find(',', at) == std::string::npos ? ids.size() : ids.find(',', at) + 1) {
      const std::int32_t id = std::stoi(ids.substr(at));
      if (id < 700 && !tokenizer->is_special(id)) text += tokenizer->token_text(id);
    }
    return text;
  };
  for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
    const Ids whole = one["ids"][i];
    const std::string right = said_as_text(whole);
    options.prompt = golden["texts"][i];
    options.raw = false;
    const auto [text, count] = said();
    EXPECT_EQ(count, std::ssize(whole));
    EXPECT_EQ(text.substr(0, 3), right.substr(0, 3)) << i;  // an end token of the tokenizer may end it earlier
    ASSERT_FALSE(remarks.empty());
    EXPECT_NE(remarks.back().find("the prompt begins with token 1"), std::string::npos);
    options.begin_token = -1;
    EXPECT_EQ(said().second, std::ssize(whole) - 1);
    options.begin_token = 7;
    EXPECT_EQ(said().second, std::ssize(whole));
    options.begin_token.reset();
  }
  // Tokens that the prompt already has are not added again.
  options.prompt = "<s>the testing";
  options.parse_special = true;
  const std::int64_t once = said().second;
  options.begin_token = -1;
  EXPECT_EQ(said().second, once);
  options.begin_token = 701;
  expect_error(ExitCode::usage, "--begin-token", said);
}

}  // namespace
}  // namespace ringtrain::testing
