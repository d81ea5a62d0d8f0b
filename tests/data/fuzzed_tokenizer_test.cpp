// Small random tokenizers of tests/tokenizers/fuzz_test.py, with the ids of the reference programs
// (tests/tokenizers/fuzzed.json), and the rules to which its findings were reduced.
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/formats/tokenizer_json.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/unicode.h"
#include "tests/data/data_fixture.h"
#include "tests/support/split_pieces.h"

namespace ringtrain {
namespace {

using nlohmann::json;

/// Returns the texts of the bytes 0 to 255, as in byte-level vocabularies or byte pieces.
std::vector<std::string> run_of_bytes(const std::string& name) {
  std::vector<std::string> texts;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    std::string text = fmt::format("<0x{:02X}>", byte);
    if (name == "byte characters") {
      text.clear();
      append_utf8(text, printable ? static_cast<char32_t>(byte) : next++);
    }
    texts.push_back(text);
  }
  return texts;
}

BpeSpec spec_of(const json& one) {
  json file = one["tokenizer"];
  json vocabulary = json::object();
  for (const json& token : file["model"]["vocab"]) {
    if (token.is_object()) {
      for (const std::string& text : run_of_bytes(token["run"])) vocabulary.emplace(text, vocabulary.size());
    } else {
      vocabulary.emplace(token.get<std::string>(), vocabulary.size());
    }
  }
  file["model"]["vocab"] = vocabulary;
  return read_tokenizer_json(file, "a test");
}

/// Returns the ids of a text, or nothing if the tokenizer is refused.
std::optional<std::vector<std::int32_t>> ids_of(const json& one, const std::string& text, SpecialTokens special) {
  std::optional<BpeTokenizer> tokenizer;
  try {
    tokenizer.emplace(spec_of(one));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data) << error.what();
    return std::nullopt;
  }
  return tokenizer->encode(text, special);
}

TEST(FuzzedTokenizer, IdsAreThoseOfTheReferenceProgramsOrRefused) {
  std::ifstream file(testing::source_folder() + "/tests/tokenizers/fuzzed.json");
  int same = 0;
  for (const json& one : json::parse(file)) {
    const auto special = one["parse"].get<bool>() ? SpecialTokens::parse : SpecialTokens::text;
    const auto ids = ids_of(one, one["text"], special);
    if (!ids) continue;
    ++same;
    EXPECT_EQ(*ids, one["ids"].get<std::vector<std::int32_t>>()) << one.dump();
  }
  EXPECT_GE(same, 10);
}

class AddedTokens : public ::testing::Test {
 protected:
  /// A tokenizer.json of the letters a and b with added tokens, Metaspace "always" and unknown characters.
  static json letters(const std::vector<std::pair<std::string, json>>& added) {
    json file = {{"version", "1.0"}, {"added_tokens", json::array()}};
    file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}};
    file["model"] = {{"type", "BPE"}, {"merges", json::array()}, {"unk_token", "<unk>"}};
    file["model"]["vocab"] = {{"<unk>", 0}, {"a", 1}, {"b", 2}, {"\u2581", 3}};
    for (const auto& [content, flags] : added) {
      json token = {{"id", 4 + file["added_tokens"].size()}, {"content", content}, {"normalized", false}};
      token.update(flags);
      file["added_tokens"].push_back(token);
    }
    return file;
  }
  static std::vector<std::int32_t> ids(const json& file, const std::string& text) {
    return BpeTokenizer(read_tokenizer_json(file, "a test")).encode(text);
  }
};

TEST_F(AddedTokens, MetaspaceComesAfterNormalizedTokens) {
  const json file = letters({{"a b", {{"normalized", true}}}, {"x", {{"normalized", true}}}});
  EXPECT_EQ(ids(file, "a a b"), (std::vector<std::int32_t>{3, 1, 3, 4}));
  EXPECT_EQ(ids(file, "xa"), (std::vector<std::int32_t>{5, 3, 1}));
}

TEST_F(AddedTokens, WordsAreThoseOfUnicode) {
  const json file = letters({{"<x>", {{"single_word", true}}}});
  const auto is_one_token = [&](const std::string& text) { return std::ranges::count(ids(file, text), 4) == 1; };
  for (const char* text : {"\u00b2<x>", "<x>\u00bd", "-<x>-", "\u200b<x>"}) EXPECT_TRUE(is_one_token(text)) << text;
  for (const char* text :
       {"\u200d<x>", "<x>\u200c", "_<x>", "<x>\u203f", "\u0661<x>", "\u2167<x>", "<x>\u24b6", "\u0301<x>"}) {
    EXPECT_FALSE(is_one_token(text)) << text;
  }
}

TEST_F(AddedTokens, TokensThatTakeTheSameWhiteSpaceAreTheReferences) {
  const json file = letters({{"<r>", {{"rstrip", true}}}, {"<l>", {{"lstrip", true}}}, {" ", json::object()}});
  EXPECT_EQ(ids(file, "<r> \t<l>a"), (std::vector<std::int32_t>{4, 6, 5, 3, 1}));
  EXPECT_EQ(ids(file, "<r>\t a"), (std::vector<std::int32_t>{4, 6, 3, 1}));
  EXPECT_EQ(ids(file, "<r> \ta"), (std::vector<std::int32_t>{4, 6, 3, 0, 1}));  // the tab is text again
}

TEST_F(AddedTokens, IdsThatTokenizersItselfGivesDifferentlyAreRefused) {
  json file = letters({{"<x>", json::object()}, {"<y>", json::object()}});
  EXPECT_NO_THROW(read_tokenizer_json(file, "a test"));
  file["added_tokens"][1]["id"] = 9;
  expect_error(ExitCode::data, "a test: the id of the added token '<y>' is 9 (the library tokenizers gives it 5)",
               [&] { read_tokenizer_json(file, "a test"); });
}

TEST(UnknownPatterns, AMatchOfNoWidthIsABorder) {
  EXPECT_EQ(split_pieces(R"((?=(?:\d{3})+(?!\d)))", "1234567"), "[1][234][567]");
  EXPECT_EQ(split_pieces(R"((?<=[a-z])(?=[A-Z]))", "camelCaseX"), "[camel][Case][X]");
  EXPECT_EQ(split_pieces("x*", "axxb\u00e9"), "[a][xx][b][\u00e9]");
  EXPECT_EQ(split_pieces("", "a\u4e2d"), "[a][\u4e2d]");
}

TEST(UnknownPatterns, AStackIsMadeOncePerEncoder) {
  constexpr int texts = 4000;
  Splitter splitter(R"(\p{L}+|\s)", "a test");
  std::vector<std::size_t> ends;
  splitter.split("some text", ends);
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  };
  const auto before = faults();
  for (int i = 0; i < texts; ++i) {
    ends.clear();
    splitter.split("some text", ends);
  }
  EXPECT_EQ(ends.size(), 3U);
  EXPECT_LT(faults() - before, texts / 10);  // a new stack is a new page, at least
}

TEST(UnknownPatterns, WhatEnginesReadInDifferentWaysIsRefused) {
  for (const char* pattern :
       {R"(\w+)", R"(\b)",   R"(\h)",       R"(\v+)", "^a",        "a$",     "a{2}+",     "a{2}?",
        "a{,2}",  "[+--/]",  "[ab~~b]",     "[a&&b]", "[[a]b]",    "[]a]",   R"([a-\d])", R"([\d-a])",
        "(?i)a",  "(?i:ss)", "(?i:\u00e9)", "(?m:a)", R"(\p{^L})", R"(\pL)", R"(\xe9)",   R"((a)\1)",
        R"(\R)",  "(?=a)*",  "(?<n>a)",     "(?#a)",  "(*UCP)a",   R"(\Qa)"}) {
    const std::string message = error_of(ExitCode::data, [&] { Splitter(pattern, "a.json"); });
    EXPECT_TRUE(holds(message, "a.json: its pattern ")) << pattern;
    EXPECT_TRUE(holds(message, "interpret in different ways")) << message;
  }
  for (const char* pattern :
       {R"(\s++$|\s+)", R"([^\S\n]+)", R"(\u3040|\x{e9}|\x41)", R"([a\-z\]-])", "[a-]", "(?>a+)b", "a{1,2}?",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)", "'(?i:[sdmt]|ll|ve|re)"}) {
    EXPECT_NO_THROW(Splitter(pattern, "a.json")) << pattern;
  }
}

}  // namespace
}  // namespace ringtrain
