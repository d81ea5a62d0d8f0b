// Turns JSONL, compressed files, and real tokenizers' texts into token files.
#include <algorithm>

#include "data/corpus.h"
#include "data/preparation/prepare.h"
#include "data/token_file.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "framework/config/data_config.h"
#include "tests/data/data_fixture.h"
#include "tests/data/packed.h"

namespace ringtrain {
namespace {

class PrepareJson : public DataTest {
 protected:
  TextOptions options(int threads = 1) const {
    TextOptions result;
    result.tokenizer = tokenizer.get();
    result.document_end = tokenizer->end_of_document().value_or(-1);
    result.threads = threads;
    return result;
  }
  CorpusSummary prepare(const std::vector<std::string>& inputs, const std::string& output, const TextOptions& how) {
    return prepare_text(find_sources(inputs, nullptr), {at(output), 0, 7}, how, nullptr, nullptr);
  }
  std::string refusal(const std::string& input, const TextOptions& how) {
    std::string said = error_of(ExitCode::data, [&] { prepare({at(input)}, "refused.h5", how); });
    EXPECT_FALSE(path_exists(at("refused.h5")));
    return said;
  }
  /// Returns the texts of a file's documents, sorted.
  std::vector<std::string> documents(const std::string& name) const {
    std::vector<std::string> texts = texts_of(*TokenFile::open(at(name)), *tokenizer);
    std::ranges::sort(texts);
    return texts;
  }
  void use_tiny() { tokenizer = load_tokenizer(tiny("byte_level.json")); }
  std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
};

TEST_F(PrepareJson, EveryLineIsADocumentHoweverItIsPacked) {
  const std::string lines =
      "{\"text\": \"one\"}\r\n\n{\"id\": 3, \"text\": \"two \\u00e9\\n\"}\n  \n{\"text\": \"\"}\n{\"text\": \"three\"}";
  const std::vector<std::string> expected{"one", "three", "two \u00e9\n"};
  text("plain.jsonl", lines);
  text("g.jsonl.gz", gzipped(lines.substr(0, 20)) + gzipped(lines.substr(20)));  // two members
  text("z.ndjson.zst", zstandard(lines.substr(0, 30)) + zstandard(lines.substr(30)));
  for (const char* name : {"plain.jsonl", "g.jsonl.gz", "z.ndjson.zst"}) {
    const std::string output = std::string(name) + ".h5";
    const CorpusSummary summary = prepare({at(name)}, output, options());
    EXPECT_EQ(documents(output), expected) << name;
    EXPECT_EQ(summary.empty_lines, 1);
    EXPECT_EQ(summary.bytes, 3 + 5 + 7);
  }
}

TEST_F(PrepareJson, BrokenLinesAreNamedOrCounted) {
  for (const char* line :
       {"{\"text\": ", "[1]", "{\"txt\": \"a\"}", "{\"text\": 7}", "\xFF", R"({"text": "a", "text": "b"})"}) {
    text("in.jsonl", std::string("{\"text\": \"good\"}\n\n") + line + "\n{\"text\": \"more\"}\n");
    const std::string said = refusal("in.jsonl", options());
    EXPECT_TRUE(holds(said, "in.jsonl:3: "));
    TextOptions skipping = options();
    skipping.skip_broken_lines = true;
    fs::remove(at("a.h5"));
    fs::remove(manifest_path(at("a.h5")));
    EXPECT_EQ(prepare({at("in.jsonl")}, "a.h5", skipping).broken_lines, 1);
    EXPECT_EQ(documents("a.h5"), (std::vector<std::string>{"good", "more"}));
  }
  text("in.jsonl", "{\"text\": \"" + std::string(100, '[') + "\", \"deep\": " + std::string(1000, '[') + "}");
  EXPECT_TRUE(holds(refusal("in.jsonl", options()), "nested deeper"));
  TextOptions other = options();
  other.json.text_field = "body";
  text("in.jsonl", "{\"body\": \"b\", \"text\": \"t\"}\n");
  prepare({at("in.jsonl")}, "body.h5", other);
  EXPECT_EQ(documents("body.h5"), std::vector<std::string>{"b"});
}

TEST_F(PrepareJson, DamagedArchivesAreRefused) {
  std::string content;
  for (int i = 0; i < 20000; ++i) content += "{\"text\": \"" + std::to_string(i * i) + "\"}\n";
  for (const bool gz : {true, false}) {
    const std::string name = gz ? "a.jsonl.gz" : "a.jsonl.zst";
    std::string packed = gz ? gzipped(content) : zstandard(content);
    text(name, packed.substr(0, packed.size() - 5));
    EXPECT_TRUE(holds(refusal(name, options()), "is damaged or cut short"));
    packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x55);
    packed[packed.size() / 2 + 1] = static_cast<char>(packed[packed.size() / 2 + 1] ^ 0x55);
    text(name, packed);
    const std::string said = refusal(name, options());
    EXPECT_TRUE(said.find("damaged") != std::string::npos || said.find(name + ":") != std::string::npos) << said;
    text(name, "no archive");
    EXPECT_TRUE(holds(refusal(name, options()), "is damaged"));
  }
}

TEST_F(PrepareJson, OfAPromptAndItsCompletionTheLatterIsLearned) {
  use_tiny();
  text("pairs.jsonl", R"({"completion": "testing", "prompt": "the "})"
                      "\n"
                      R"({"prompt": "th", "completion": "e"})"
                      "\n"
                      R"({"prompt": "", "completion": "of"})"
                      "\n"
                      R"({"prompt": "no answer", "completion": ""})"
                      "\n");
  TextOptions marked = options();
  marked.document_start = tokenizer->find_special("<|endoftext|>");
  const CorpusSummary summary = prepare({at("pairs.jsonl")}, "pairs.h5", marked);
  const auto file = TokenFile::open(at("pairs.h5"));
  std::vector<std::int32_t> tokens(file->token_count());
  std::vector<float> weights(tokens.size());
  file->read(0, tokens);
  file->read_weights(0, weights);
  EXPECT_EQ(summary.learned_tokens, std::ranges::count(weights, 1.0f));
  std::vector<std::string> context_and_learned;
  const auto offsets = file->document_offsets();
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
    std::string context, learned;
    for (auto t = static_cast<std::size_t>(offsets[d]); t < static_cast<std::size_t>(offsets[d + 1]); ++t) {
      (weights[t] == 0.0f ? context : learned) += tokenizer->token_text(tokens[t]);
    }
    context_and_learned.push_back(context + "|" + learned);
  }
  std::ranges::sort(context_and_learned);
  // A token that contains any of both is learned, and so is all text without a prompt.
  const std::string mark = "<|endoftext|>";
  EXPECT_EQ(context_and_learned,
            (std::vector<std::string>{mark + "the| testing" + mark, mark + "|the" + mark, "|" + mark + "of" + mark}));
}

TEST_F(PrepareJson, AConversationIsRefusedWithWhatReadsIt) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  const std::vector<std::string> lines{
      chat + "}", R"({"conversations": [{"from": "human", "value": "a"}]})",
      R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]})"};
  for (const std::string& line : lines) {
    text("chat.jsonl", "{\"text\": \"t\"}\n" + line + "\n");
    EXPECT_TRUE(
        holds(refusal("chat.jsonl", options()),
              "chat.jsonl:2: this is a conversation, which prepare does not read: convert this file with `python3"));
  }
  text("both.jsonl", chat + R"(, "text": "t"})");
  EXPECT_TRUE(holds(refusal("both.jsonl", options()), "or name the text's field with --text-field"));
  TextOptions named = options();
  named.json.text_field_named = true;
  prepare({at("both.jsonl")}, "both.h5", named);
  EXPECT_EQ(documents("both.h5"), std::vector<std::string>{"t"});
}

TEST_F(PrepareJson, TheFileIsTheSameForAnyNumberOfThreads) {
  use_tiny();
  std::string lines, book;
  for (int i = 0; i < 3000; ++i) {
    const std::string sentence =
        "Sentence " + std::to_string(i * 31) + " of a story about \u00e9t\u00e9 and  caf\u00e9s";
    lines += "{\"text\": \"" + sentence + std::string(static_cast<std::size_t>(i % 97), 'x') + "\"}\n";
    for (int j = 0; j < 8; ++j) book += sentence + ", told for the time " + std::to_string(j) + ".\n";
  }
  text("in/lines.jsonl", lines);
  text("in/book.txt", book);  // cut into several blocks
  ASSERT_GT(book.size(), std::size_t{3} << 19);
  const CorpusSummary one = prepare({at("in")}, "one.h5", options(1));
  const CorpusSummary five = prepare({at("in")}, "five.h5", options(5));
  EXPECT_EQ(one.hash, five.hash);
  EXPECT_EQ(one.documents, 3001);
  // A book that is cut has the same tokens as the whole.
  const auto file = TokenFile::open(at("one.h5"));
  const std::vector<std::int32_t> whole = tokenizer->encode(book);
  EXPECT_EQ(*std::ranges::max_element(one.lengths), static_cast<std::int64_t>(whole.size()) + 1);
  const auto longest = static_cast<std::size_t>(std::ranges::max_element(one.lengths) - one.lengths.begin());
  std::vector<std::int32_t> tokens(whole.size());
  file->read(file->document_offsets()[longest], tokens);
  EXPECT_EQ(tokens, whole);
}

TEST_F(PrepareJson, TheFileKnowsItsTokenizerAndItsBytes) {
  use_tiny();
  text("a.txt", "the testing of the rest");
  text("b.txt", "a");
  TextOptions marked = options();
  marked.document_start = marked.document_end = tokenizer->find_special("<|endoftext|>").value_or(-1);
  EXPECT_EQ(marked.document_end, 0);
  prepare({at("a.txt"), at("b.txt")}, "a.h5", marked);
  const auto file = TokenFile::open(at("a.h5"));
  EXPECT_EQ(file->end_of_document(), 0);
  EXPECT_EQ(file->tokenizer_hash(), tokenizer->identity());
  EXPECT_EQ(file->vocab_size(), tokenizer->vocab_size());
  for (std::int64_t d = 0; d < 2; ++d) {
    const auto offsets = file->document_offsets();
    const auto length = offsets[static_cast<std::size_t>(d) + 1] - offsets[d];
    std::vector<std::int32_t> tokens(length);
    file->read(offsets[d], tokens);
    EXPECT_EQ(tokens.front(), 0);
    const double bytes = length == 3 ? 1 : 23;
    EXPECT_DOUBLE_EQ(file->bytes_per_token(d), bytes / static_cast<double>(length - 2));
  }
  // Files of two tokenizers cannot be combined, and a smaller vocabulary is refused.
  tokenizer = make_byte_tokenizer();
  prepare({at("a.txt")}, "bytes.h5", options());
  DataConfig config;
  config.train = {{at("a.h5"), 1}, {at("bytes.h5"), 1}};
  expect_error(ExitCode::data, "different tokenizers", [&] { open_corpus(config, 1000); });
  config.train = {{at("a.h5"), 1}};
  expect_error(ExitCode::data, "model.vocab_size is 257", [&] { open_corpus(config, 257); });
}

TEST_F(PrepareJson, PatternsNameManyFiles) {
  text("in/a1.txt", "first");
  text("in/a2.txt", "second");
  text("in/b.txt", "third");
  prepare({at("in/a*.txt")}, "a.h5", options());
  EXPECT_EQ(documents("a.h5"), (std::vector<std::string>{"first", "second"}));
  expect_error(ExitCode::data, "nothing matches", [&] { find_sources({at("in/*.jsonl")}, nullptr); });
}

TEST_F(PrepareJson, BinaryTextsShowOnceTheyAreUnpacked) {
  text("a.txt.gz", gzipped("text"));
  text("b.dat.gz", gzipped(std::string("a\0b", 3)));
  const CorpusSummary summary = prepare({at("a.txt.gz"), at("b.dat.gz")}, "a.h5", options());
  EXPECT_EQ(summary.binary, 1);
  EXPECT_EQ(documents("a.h5"), std::vector<std::string>{"text"});
}

TEST_F(PrepareJson, WhatCannotBeCutIsRefusedBeyondItsLimit) {
  use_tiny();
  text("run.txt", std::string((std::size_t{16} << 20) + 100, 'a'));
  EXPECT_TRUE(
      holds(refusal("run.txt", options()), "run.txt: this tokenizer cannot cut 16777216 bytes of text anywhere"));
  text("piece.jsonl", "\n{\"text\": \"" + std::string(std::size_t{5} << 20, 'a') + "\"}");
  EXPECT_TRUE(holds(refusal("piece.jsonl", options()),
                    "piece.jsonl:2: the tokenizer makes one piece of 5242880 consecutive bytes"));
  text("line.jsonl", "{\"text\": \"" + std::string((std::size_t{16} << 20) + 100, 'a') + "\"}");
  EXPECT_TRUE(holds(refusal("line.jsonl", options()),
                    "line.jsonl:1: this tokenizer cannot cut 16777216 bytes of text anywhere"));
}

}  // namespace
}  // namespace ringtrain
