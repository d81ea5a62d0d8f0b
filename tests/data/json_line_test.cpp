// Compares the scanner of a line of JSONL with the library's parser, and checks long lines within the promised memory.
#include <sys/resource.h>

#include "data/preparation/data_forms.h"
#include "data/preparation/json_line.h"
#include "data/preparation/prepare.h"
#include "data/preparation/text_blocks.h"
#include "data/token_file.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "tests/data/data_fixture.h"

namespace ringtrain {
namespace {

using nlohmann::json;

std::string unescaped(const JsonField& field, std::int64_t* lone = nullptr) {
  std::int64_t count = 0;
  std::string text(field.raw.size(), '\0');
  text.resize(unescape_json(field.raw, text.data(), &count));
  if (lone) *lone = count;
  return text;
}

/// Returns the text of a line, or nothing if it is refused.
std::optional<std::string> text_of_line(const std::string& line) {
  try {
    const JsonLine found = scan_json_line(line, "text");
    return found.text.is_text ? unescaped(found.text) : "no text";
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// The same by the library.
std::optional<std::string> text_by_library(const std::string& line) {
  const json value = json::parse(line, nullptr, false);
  if (!value.is_object()) return std::nullopt;
  const auto text = value.find("text");
  if (text == value.end()) return "no text";
  if (text->is_null()) return "";
  return text->is_string() ? text->get<std::string>() : "no text";
}

TEST(JsonLine, IsWhatTheParserSaysForEveryChangeOfAByte) {
  const std::vector<std::string> lines{
      R"({"text": "a\"b\\\/\b\f\n\r\té\u00e9\ud83d\ude00", "n": -75e3, "t": true, "f": false})",
      R"( {"a": {"text": "inner", "b": [1, [], {}, [[2]], {"c": null}]}, "te\u0078t" :null } )",
      R"({})",
      R"({"text": "", "l": ["x", {"y": "z"}], "texts2": "other"})",
  };
  int accepted = 0, refused = 0;
  const auto compare = [&](const std::string& line) {
    const auto expected = text_by_library(line), found = text_of_line(line);
    if (found && found->find("\uFFFD") != std::string::npos) return;  // the library refuses half of a pair
    EXPECT_EQ(found, expected) << line;
    ++(expected ? accepted : refused);
  };
  for (const std::string& line : lines) {
    compare(line);
    for (std::size_t i = 0; i < line.size(); ++i) {
      if ((line[i] & 0x80) || (i > 0 && (line[i - 1] & 0x80))) continue;  // ill-formed UTF-8 is replaced, not refused
      std::string cut = line;
      compare(cut.erase(i, 1));
      for (const char other : std::string("{}[]\",:\\un \t\x01x")) {
        std::string changed = line, longer = line;
        changed[i] = other;
        longer.insert(i, 1, other);
        compare(changed);
        compare(longer);
      }
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 500);
}

TEST(JsonLine, HalvesOfPairsAreReplacedAndCounted) {
  const std::vector<std::tuple<std::string, std::string, int>> cases{
      {R"(\ud83d)", "\uFFFD", 1},
      {R"(\ude00x)", "\uFFFDx", 1},
      {R"(\ud83d\ud83d\ude00)", "\uFFFD\U0001F600", 1},
      {R"(\ud83d\u0041)", "\uFFFDA", 1},
      {R"(\ud83d\n\ude00)", "\uFFFD\n\uFFFD", 2},
      {R"(\ud83d\ude00)", "\U0001F600", 0},
      {R"(\uD83D\uDE00\udbff\udfff\ud800\udc00)", "\U0001F600\U0010FFFF\U00010000", 0},
  };
  for (const auto& [written, text, count] : cases) {
    std::int64_t lone = 0;
    const std::string line = "{\"text\": \"" + written + "\"}";
    EXPECT_EQ(unescaped(scan_json_line(line, "text").text, &lone), text) << written;
    EXPECT_EQ(lone, count) << written;
  }
}

TEST(JsonLine, WhatIsNotReadMayBeWhatPythonWrites) {
  for (const char* value : {"NaN", "Infinity", "-Infinity", "[NaN, {\"a\": -Infinity}]", "1e999", "-0.0"}) {
    EXPECT_EQ(text_of_line(std::string(R"({"score": )") + value + R"(, "text": "t"})"), "t") << value;
  }
  for (const char* value : {"nan", "+1", "1-", "--1", "Infinit", "tru", "0x10", ".", "e", "'a'"}) {
    EXPECT_EQ(text_of_line(std::string(R"({"score": )") + value + R"(, "text": "t"})"), std::nullopt) << value;
  }
  EXPECT_EQ(text_of_line(R"({"text": "a", "te\u0078t": "b"})"), std::nullopt);
  const auto nested = [](int depth) {
    return R"({"text": "t", "d": )" + std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']') + "}";
  };
  EXPECT_EQ(text_of_line(nested(63)), "t");
  EXPECT_EQ(text_of_line(nested(64)), std::nullopt);
}

class LongLines : public DataTest {
 protected:
  CorpusSummary prepare(const std::string& input, bool skip_broken = false) {
    TextOptions how;
    how.tokenizer = tokenizer.get();
    how.document_end = tokenizer->end_of_document().value_or(-1);
    how.skip_broken_lines = skip_broken;
    return prepare_text(find_sources({at(input)}, nullptr), {at("out.h5"), 0, 7}, how, nullptr, nullptr);
  }
  static constexpr std::size_t beyond = max_block_bytes + 1000;  // of one block
  std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
};

std::string words(std::size_t bytes, int seed) {
  std::string text;
  for (std::size_t i = static_cast<std::size_t>(seed); text.size() < bytes; ++i) {
    text += "word " + std::to_string(i * i) + " caf\u00e9\n";
  }
  return text;
}

TEST_F(LongLines, HaveTheTokensOfTheirTexts) {
  tokenizer = load_tokenizer(tiny("byte_level.json"));
  const std::string prompt = words(beyond / 2, 1), answer = words(beyond / 2, 2);
  const json line{{"completion", answer}, {"prompt", prompt}};  // written in this order
  text("a.jsonl", json{{"text", "short"}}.dump() + "\n" + line.dump() + "\n" +
                      json{{"pad", std::string(beyond, 'x')}, {"text", nullptr}}.dump() + "\n" +
                      json{{"pad", std::string(beyond, 'x')}}.dump() + "\n" + json{{"text", "last"}}.dump());
  expect_error(ExitCode::data, "a.jsonl:4: no field \"text\"", [&] { prepare("a.jsonl"); });
  const CorpusSummary summary = prepare("a.jsonl", true);
  EXPECT_EQ(summary.documents, 3);
  EXPECT_EQ(summary.empty_lines, 1);
  EXPECT_EQ(summary.broken_lines, 1);
  const auto file = TokenFile::open(at("out.h5"));
  const std::vector<std::int32_t> whole = tokenizer->encode(prompt + answer);
  const auto longest = std::ranges::max_element(summary.lengths) - summary.lengths.begin();
  ASSERT_EQ(summary.lengths[static_cast<std::size_t>(longest)], static_cast<std::int64_t>(whole.size()) + 1);
  std::vector<std::int32_t> tokens(whole.size());
  std::vector<float> weights(whole.size());
  file->read(file->document_offsets()[longest], tokens);
  file->read_weights(file->document_offsets()[longest], weights);
  EXPECT_TRUE(tokens == whole);
  const std::size_t border = tokenizer->encode(prompt).size();  // it ends in a line feed, which no token spans
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(weights, 0.0f)), border);
  EXPECT_EQ(weights[border - 1], 0.0f);
  EXPECT_EQ(weights[border], 1.0f);
}

TEST_F(LongLines, NeedAtMostThreeTimesTheirBytes) {
  std::string piece = json(words(std::size_t{1} << 20, 3)).dump();
  piece = piece.substr(1, piece.size() - 2);  // without its quotes
  [[maybe_unused]] std::int64_t bytes = 0;
  {
    std::ofstream file(at("a.jsonl"), std::ios::binary);
    file << R"({"text": "\ud83d)";
    for (int i = 0; i < 100; ++i) file << piece;
    file << "\"}\n";
    bytes = file.tellp();
  }
  const CorpusSummary summary = prepare("a.jsonl");
  EXPECT_EQ(summary.documents, 1);
  EXPECT_EQ(summary.replaced, 1);
#ifndef RINGTRAIN_SANITIZED
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(std::int64_t{usage.ru_maxrss} * 1024, 3 * bytes);
#endif
}

TEST_F(LongLines, EndAtTheirLimit) {
  text("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"" + std::string(max_line_bytes, 'a') + "\"}");
  expect_error(ExitCode::data, "a.jsonl:2: the line has more than 268435456 bytes", [&] { prepare("a.jsonl"); });
}

}  // namespace
}  // namespace ringtrain
