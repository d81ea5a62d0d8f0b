// Compares tokenizers with the ids of the reference programs (tests/tokenizers/make_tiny.py), and checks the
// requirements of their files. Each known pitfall of tokenizers has a text among the golden ones, or its own test here.
#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/unicode.h"
#include "tests/data/data_fixture.h"
#include "tests/support/split_pieces.h"

namespace ringtrain {
namespace {

using nlohmann::json;

class TokenizerTest : public DataTest {
 protected:
  std::string save(const std::string& name, const json& content) const {
    std::ofstream(at(name)) << content.dump();
    return at(name);
  }
  std::unique_ptr<Tokenizer> load(const json& content) const { return load_tokenizer(save("tokenizer.json", content)); }
  /// Returns the message that refuses a tokenizer.json.
  std::string refusal(const json& content) const {
    const std::string path = save("tokenizer.json", content);
    std::string message = error_of(ExitCode::data, [&] { load_tokenizer(path); });
    EXPECT_TRUE(holds(message, path));
    return message;
  }
};

TEST_F(TokenizerTest, IdsAreThoseOfTheReferencePrograms) {
  const json golden = tiny_json("golden.json");
  for (const json& one : golden["cases"]) {
    const auto name = one["name"].get<std::string>();
    SCOPED_TRACE(name);
    const bool byte_level = !name.starts_with("Prepend") && !name.starts_with("Metaspace") && name != "SentencePiece";
    json file = tiny_json(byte_level ? "byte_level.json" : "sentencepiece.json");
    if (name != "SentencePiece") {  // its ids are those of the unchanged file
      file["normalizer"] = one["normalizer"];
      file["pre_tokenizer"] = one["pre_tokenizer"];
      file["model"].update(one["model"]);
    }
    const auto tokenizer = load(file);
    const json& texts = golden[byte_level || name == "SentencePiece" ? "texts" : "marked_texts"];
    const auto encoder = tokenizer->make_encoder(SpecialTokens::text);
    for (int pass = 0; pass < 2; ++pass) {  // the second with pieces in the cache
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto text = texts[i].get<std::string>();
        std::vector<std::int32_t> ids;
        EXPECT_EQ(encoder->encode(text, ids), 0);
        EXPECT_EQ(ids, one["text"][i].get<std::vector<std::int32_t>>()) << i << ": " << text;
        if (one.contains("parse")) {
          EXPECT_EQ(tokenizer->encode(text, SpecialTokens::parse), one["parse"][i].get<std::vector<std::int32_t>>())
              << i << ": " << text;
        }
      }
    }
  }
}

TEST_F(TokenizerTest, DecodingGivesTheTextAgain) {
  const json golden = tiny_json("golden.json");
  for (const char* name : {"byte_level.json", "sentencepiece.json"}) {
    const auto tokenizer = load_tokenizer(tiny(name));
    for (const json& one : golden["texts"]) {
      const auto text = one.get<std::string>();
      if (text.find("\u2581") != std::string::npos) continue;  // SentencePiece's own space
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << name;
    }
  }
}

TEST_F(TokenizerTest, PiecesOfKnownPatterns) {
  const auto split = [&](std::string_view pattern, const std::string& text) {
    return split_pieces(std::string(pattern), text);
  };
  EXPECT_EQ(split(patterns::gpt2, "we'll  12 _x"), "[we]['ll][ ][ 12][ _][x]");
  EXPECT_EQ(split(patterns::llama3, "WE'LL 1234\n\n x"), "[WE]['LL][ ][123][4][\n\n][ x]");
  EXPECT_EQ(split(patterns::qwen2, "'\u017f 12"), "['\u017f][ ][1][2]");  // U+017F is an s in any case
  EXPECT_EQ(split(patterns::llama3, "x\u180ey"), "[x][\u180ey]");         // no white space
  EXPECT_EQ(split(patterns::qwen35, "a\u0301b"), "[a\u0301b]");
  EXPECT_EQ(split(patterns::qwen2, "a\u0301b"), "[a][\u0301b]");
  EXPECT_EQ(split(patterns::tekken, "HTMLParser"), "[HTMLParser]");
  EXPECT_EQ(split(patterns::tekken, "camelCase's"), "[camel][Case]['s]");
  EXPECT_EQ(split(patterns::o200k, "camelCase's"), "[camel][Case's]");
  EXPECT_EQ(split(patterns::gpt2, "   x"), "[  ][ x]");
  EXPECT_EQ(split(patterns::gpt2, "x   "), "[x][   ]");
}

TEST_F(TokenizerTest, PatternsKeepTheMeaningOfWhiteSpace) {
  EXPECT_EQ(split_pieces(R"(\s+|\S+)", "a\u180eb\u00a0\u0085c\u200bd"), "[a\u180eb][\u00a0\u0085][c\u200bd]");
  EXPECT_EQ(split_pieces(R"([\s\d]+)", "a\u180e1 2b"), "[a\u180e][1 2][b]");
  expect_error(ExitCode::data, "a.json", [] { Splitter("(", "a.json"); });
}

TEST_F(TokenizerTest, LongRunsAreOnePieceAndHostilePatternsGiveUp) {
  for (const std::string_view pattern : patterns::known) {
    Splitter splitter(std::string(pattern), "a test");
    for (const char* character : {"A", "a", "\u4e2d", " ", "!"}) {
      std::string text;
      while (text.size() < 2'000'000) text += character;
      std::vector<std::size_t> ends;
      splitter.split(text, ends);
      EXPECT_EQ(ends, std::vector{text.size()}) << pattern << " of '" << character << "'";
    }
  }
  expect_error(ExitCode::data, "failed at byte 0 of a text of 64 bytes: match limit exceeded",
               [] { split_pieces("(?:(?:a|aa)*)*[!?]", std::string(64, 'a')); });
}

TEST_F(TokenizerTest, IllFormedBytesAreReplacedByMaximalSubparts) {
  const auto tokenizer = load_tokenizer(tiny("byte_level.json"));
  const struct {
    std::string bytes, text;
    std::int64_t replaced;
  } cases[] = {{"a\xFF", "a\uFFFD", 1},
               {"\xF0\x9F\x98", "\uFFFD", 1},  // cut short: one
               {"\xF0\x9F\x98"
                "a",
                "\uFFFDa", 1},
               {"\xC0\x80", "\uFFFD\uFFFD", 2},            // an overlong form: each byte
               {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD", 3},  // a surrogate
               {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD", 4},
               {"\xE2\x82"
                "\xE2\x82\xAC",
                "\uFFFD\u20AC", 1},
               {"\x80\xBF", "\uFFFD\uFFFD", 2}};
  for (const auto& one : cases) {
    std::vector<std::int32_t> ids;
    EXPECT_EQ(tokenizer->make_encoder(SpecialTokens::text)->encode(one.bytes, ids), one.replaced);
    EXPECT_EQ(tokenizer->decode(ids), one.text);
  }
  const auto bytes = load_tokenizer("bytes");
  EXPECT_EQ(bytes->encode("a\xFF"), (std::vector<std::int32_t>{'a', 255}));
  EXPECT_EQ(bytes->end_of_document(), 256);
}

TEST_F(TokenizerTest, ComposedFormsAreMadeWhereTheyDiffer) {
  EXPECT_TRUE(is_plain_nfc("plain \u00e9 \u4e2d\u6587 \uac00 \U0001f600"));
  for (const char* text : {"e\u0301", "\u212b", "\u1100\u1161", "\u0958"}) {
    EXPECT_FALSE(is_plain_nfc(text)) << text;
    EXPECT_NE(to_nfc(text), text);
  }
  EXPECT_EQ(to_nfc("e\u0301\u1100\u1161\u11a8"), "\u00e9\uac01");
}

TEST_F(TokenizerTest, BothFormsOfMergesAndAnyWhiteSpaceGiveOneIdentity) {
  const json file = tiny_json("byte_level.json");
  json pairs = file, texts = file;
  for (std::size_t i = 0; i < file["model"]["merges"].size(); ++i) {
    json merge = file["model"]["merges"][i];
    if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
    }
    pairs["model"]["merges"][i] = merge;
    texts["model"]["merges"][i] = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  const std::string identity = load(pairs)->identity();
  EXPECT_EQ(load(texts)->identity(), identity);
  EXPECT_EQ(load_tokenizer(tiny("byte_level.json"))->identity(), identity);
  std::swap(pairs["model"]["merges"][0], pairs["model"]["merges"][1]);
  EXPECT_NE(load(pairs)->identity(), identity);
}

TEST_F(TokenizerTest, TheIdentityHoldsWhetherBytesAreUsed) {
  json file = tiny_json("sentencepiece.json");
  EXPECT_EQ(load(file)->identity(), "2b0eb08339b9d87a4ba4d396b9266106");  // as token files of 0.2 name it
  file["model"]["byte_fallback"] = false;
  EXPECT_NE(load(file)->identity(), "2b0eb08339b9d87a4ba4d396b9266106");
}

TEST_F(TokenizerTest, CutsChangeNoIds) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += "It's line " + std::to_string(i * 7919) +
            " of caf\u00e9s,\n\u4e2d\u6587\u3002\n\tfoo(bar)  and  more\n\n\nwords \u00e0 la e\u0301t\u00e9 ";
  }
  for (const char* name : {"byte_level.json", "sentencepiece.json"}) {
    const auto tokenizer = load_tokenizer(tiny(name));
    const std::vector<std::int32_t> whole = tokenizer->encode(text);
    const auto encoder = tokenizer->make_encoder(SpecialTokens::text);
    int cuts = 0;
    for (std::size_t limit = 1; limit < text.size(); limit += 37) {
      const std::size_t cut = tokenizer->find_cut(std::string_view(text).substr(0, limit));
      if (cut == 0) continue;
      ++cuts;
      std::vector<std::int32_t> ids;
      encoder->encode(std::string_view(text).substr(0, cut), ids, Preceding::nothing);
      encoder->encode(std::string_view(text).substr(cut), ids, Preceding::text);
      ASSERT_EQ(ids, whole) << name << " cut at " << cut;
    }
    EXPECT_GT(cuts, 100) << name;
  }
}

TEST_F(TokenizerTest, WhatPrecedesATextSaysWhetherItGetsASpace) {
  json file = tiny_json("sentencepiece.json");
  const auto first_text = [&](const Tokenizer& tokenizer, Preceding preceding) {
    std::vector<std::int32_t> ids;
    tokenizer.make_encoder(SpecialTokens::text)->encode("a", ids, preceding);
    return tokenizer.token_text(ids.at(0));
  };
  const auto always = load(file);
  EXPECT_EQ(first_text(*always, Preceding::nothing)[0], ' ');
  EXPECT_EQ(first_text(*always, Preceding::token)[0], ' ');
  EXPECT_EQ(first_text(*always, Preceding::text), "a");
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}};
  const auto first = load(file);
  EXPECT_EQ(first_text(*first, Preceding::nothing)[0], ' ');
  EXPECT_EQ(first_text(*first, Preceding::token), "a");
  EXPECT_EQ(first_text(*first, Preceding::text), "a");
}

TEST_F(TokenizerTest, AddedTokensKeepToTheirRules) {
  json file = tiny_json("byte_level.json");
  const auto add = [&](const std::string& content, int id, const char* flag) {
    json token = {{"id", id}, {"content", content}, {"special", false}, {"normalized", false}};
    if (*flag) token[flag] = true;
    file["added_tokens"].push_back(token);
  };
  add("<word>", 601, "single_word");
  add("<left>", 602, "lstrip");
  add("<right>", 603, "rstrip");
  add("<rig", 604, "");
  const auto tokenizer = load(file);
  EXPECT_EQ(tokenizer->vocab_size(), 605);
  const auto count = [&](const std::string& text, std::int32_t id) {
    const auto ids = tokenizer->encode(text);
    return std::ranges::count(ids, id);
  };
  EXPECT_EQ(count("a <word> b", 601), 1);
  EXPECT_EQ(count("a<word> b", 601), 0);
  EXPECT_EQ(count("<word>_", 601), 0);
  EXPECT_EQ(tokenizer->encode("a \n<left>b").size(), 3u);
  EXPECT_EQ(tokenizer->encode("a<right> \t b").size(), 3u);
  EXPECT_EQ(count("<right>", 604), 0);  // the longest one counts
  EXPECT_EQ(count("<rigid", 604), 1);
  EXPECT_EQ(tokenizer->find_special("<left>"), 602);
  EXPECT_TRUE(tokenizer->is_special(tokenizer->find_special("<|endoftext|>").value_or(-1)));
  EXPECT_EQ(tokenizer->end_of_document(), tokenizer->find_special("<|endoftext|>"));
}

TEST_F(TokenizerTest, WholePiecesComeFirstWhereTheFileSaysSo) {
  json file = tiny_json("byte_level.json");
  file["model"]["vocab"]["\u0120xqzk"] = 650;  // no merges produce it
  file["added_tokens"].erase(1);               // its id would not be the next one
  EXPECT_EQ(load(file)->encode(" xqzk").size(), 5u);
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(load(file)->encode(" xqzk"), std::vector<std::int32_t>{650});
  EXPECT_EQ(load(file)->encode(" xqzkx").size(), 6u);  // it is not a part of a piece
}

TEST_F(TokenizerTest, AFolderHoldsATokenizerJson) {
  std::filesystem::create_directories(at("folder"));
  expect_error(ExitCode::data, "contains no tokenizer.json", [&] { load_tokenizer(at("folder")); });
  expect_error(ExitCode::data, "does not exist", [&] { load_tokenizer(at("none")); });
  EXPECT_FALSE(holds_tokenizer(at("folder")));
  std::filesystem::copy_file(tiny("byte_level.json"), at("folder/tokenizer.json"));
  EXPECT_EQ(load_tokenizer(at("folder"))->kind(), "byte-level BPE");
  EXPECT_EQ(load_tokenizer(tiny("sentencepiece.json"))->kind(), "SentencePiece BPE");
  for (const std::string& path : {std::string("bytes"), at("folder"), tiny("sentencepiece.json")}) {
    EXPECT_EQ(read_tokenizer_identity(path), load_tokenizer(path)->identity()) << path;
  }
  EXPECT_NE(read_tokenizer_identity(at("folder")), read_tokenizer_identity(tiny("sentencepiece.json")));
  expect_error(ExitCode::data, "does not exist", [&] { read_tokenizer_identity(at("none")); });
}

// The calls were tried with transformers 5.24.0 on Mistral's SentencePiece model (also as a Llama's, and as a Gemma's
// without a space in front), Llama 3's and Qwen's tiktoken files, and tekken_240911.json. Their results gave the ids of
// SentencePiece, tiktoken, and mistral-common. (AutoTokenizer and LlamaTokenizer did not, in runs of spaces.)
TEST_F(TokenizerTest, OtherFormsAreRefusedWithTheCallThatMakesATokenizerJson) {
  const struct {
    const char *name, *content, *call;
  } forms[] = {
      {"tokenizer.model", "\n\x0e\n\x05<unk>",
       R"(PreTrainedTokenizerFast.from_pretrained("AT").save_pretrained("AT"))"},
      {"mistral_instruct_tokenizer_240323.model.v3", "\n\x0e", R"(PreTrainedTokenizerFast.from_pretrained("AT"))"},
      {"qwen.tiktoken", "YQ== 0\nYg== 1\n", R"(integrations.tiktoken.convert_tiktoken_to_fast(ENCODING, "AT"))"},
      {"tekken_240911.json", R"({"config": {"pattern": "x"}, "vocab": []})",
       R"(PreTrainedTokenizerFast.from_pretrained("AT"))"}};
  for (const auto& form : forms) {
    const std::string of_form = at(std::string("of_") + form.name), file = of_form + "/" + form.name;
    std::filesystem::create_directories(of_form);
    std::ofstream(file) << form.content;
    std::string call = form.call;
    for (std::size_t i = 0; (i = call.find("AT", i)) != std::string::npos; i += of_form.size()) {
      call.replace(i, 2, of_form);
    }
    EXPECT_TRUE(holds_tokenizer(of_form)) << form.name;
    for (const std::string& path : {of_form, file}) {
      const std::string message = error_of(ExitCode::data, [&] { load_tokenizer(path); });
      EXPECT_TRUE(holds(message, file + " is not a tokenizer.json")) << message;
      EXPECT_TRUE(holds(message, "transformers." + call)) << message;
      EXPECT_EQ(error_of(ExitCode::data, [&] { read_tokenizer_identity(path); }), message);
    }
    std::filesystem::copy_file(tiny("byte_level.json"), of_form + "/tokenizer.json");
    EXPECT_EQ(load_tokenizer(of_form)->kind(), "byte-level BPE") << form.name;
  }
}

TEST_F(TokenizerTest, WhatIsNotDoneIsRefusedByName) {
  const json good = tiny_json("byte_level.json");
  const auto with = [&](const char* pointer, const json& value) {
    json changed = good;
    changed[json::json_pointer(pointer)] = value;
    return refusal(changed);
  };
  EXPECT_TRUE(holds(with("/model/type", "Unigram"), "Unigram"));
  EXPECT_TRUE(holds(with("/model/dropout", 0.1), "dropout"));
  EXPECT_TRUE(holds(with("/model/end_of_word_suffix", "</w>"), "end_of_word_suffix"));
  EXPECT_TRUE(holds(with("/normalizer", json{{"type", "NFKC"}}), "NFKC"));
  EXPECT_TRUE(holds(with("/pre_tokenizer", json{{"type", "Whitespace"}}), "Whitespace"));
  EXPECT_TRUE(holds(with("/version", "2.0"), "2.0"));
  json untyped = tiny_json("sentencepiece.json");
  untyped["pre_tokenizer"] = {{"split", true}};
  EXPECT_TRUE(holds(refusal(untyped), "the pre_tokenizer is {\"split\":true}, which"));
  json pieces = tiny_json("sentencepiece.json");  // a mark at the start is doubled, and no Metaspace adds one
  pieces["normalizer"]["normalizers"] = {
      pieces["normalizer"]["normalizers"][1],
      {{"type", "Replace"}, {"pattern", {{"Regex", "\\A\u2581"}}}, {"content", "\u2581\u2581"}}};
  EXPECT_TRUE(holds(refusal(pieces), "doubles a leading U+2581"));
  EXPECT_TRUE(holds(with("/model/merges/0", "a b c"), "merge 0"));
  EXPECT_TRUE(holds(with("/model/merges/0", json{"a", "\u4e2d"}), "is not a token"));
  EXPECT_TRUE(holds(with("/model/vocab/a", -1), "id -1"));
  EXPECT_TRUE(holds(with("/model/vocab/a", 1e64), "id 1e+64"));
  EXPECT_TRUE(holds(with("/model/vocab/a", 97.5), "id 97.5"));
  EXPECT_TRUE(holds(with("/model/vocab/a", UINT64_MAX), "id 18446744073709551615"));
  EXPECT_TRUE(holds(with("/added_tokens", json{{{"content", "<s>"}, {"id", 1e64}}}), "'<s>' has the id 1e+64"));
  EXPECT_TRUE(holds(with("/model/vocab", 7), "tokenizer.json"));
  json lacking = good;
  lacking["model"]["vocab"].erase("a");
  lacking["model"]["merges"] = json::array();
  lacking["added_tokens"] = json::array();
  EXPECT_TRUE(holds(refusal(lacking), "0x61"));
  std::ofstream(at("cut.json")) << good.dump().substr(0, 5000);
  expect_error(ExitCode::data, "cut.json is damaged", [&] { load_tokenizer(at("cut.json")); });
}

}  // namespace
}  // namespace ringtrain
