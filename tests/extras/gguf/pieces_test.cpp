// SentencePiece's BPE: the tokenizer.json that is made of its pieces gives, here and by the rule of Hugging Face's
// tokenizers, what SentencePiece's own rule gives, which is written down here a second time.
#include "extras/gguf/pieces.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/formats/tokenizer_json.h"
#include "tests/data/data_fixture.h"

namespace ringtrain {
namespace {

using nlohmann::json;

using Symbols = std::vector<std::string>;

Symbols characters_of(const std::string& text) {
  Symbols symbols;
  for (const char c : text) symbols.emplace_back(1, c);
  return symbols;
}

void join(Symbols& symbols, std::size_t place) {
  symbols[place] += symbols[place + 1];
  symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
}

/// SentencePiece's rule: of all neighbours that are a piece together, those of the best score, the leftmost first.
Symbols merged_by_score(const std::string& text, const std::vector<Piece>& pieces) {
  std::map<std::string, float> scores;
  for (const Piece& piece : pieces) {
    if (piece.type == Piece::normal) scores[piece.text] = piece.score;
  }
  Symbols symbols = characters_of(text);
  while (true) {
    std::size_t best = symbols.size();
    float best_score = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = scores.find(symbols[i] + symbols[i + 1]);
      if (found == scores.end() || (best < symbols.size() && found->second <= best_score)) continue;
      best = i;
      best_score = found->second;
    }
    if (best == symbols.size()) return symbols;
    join(symbols, best);
  }
}

/// The rule of tokenizers: of all neighbours in the list of merges those that stand first in it, the leftmost first.
Symbols merged_by_list(const std::string& text, const json& merges) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (const json& merge : merges) ranks.emplace(std::pair{merge[0], merge[1]}, ranks.size());
  Symbols symbols = characters_of(text);
  while (true) {
    std::size_t best = symbols.size(), best_rank = ranks.size();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found == ranks.end() || found->second >= best_rank) continue;
      best = i;
      best_rank = found->second;
    }
    if (best == symbols.size()) return symbols;
    join(symbols, best);
  }
}

Symbols tokens_of(const Tokenizer& tokenizer, const std::string& text) {
  Symbols tokens;
  for (const std::int32_t id : tokenizer.encode(text)) tokens.push_back(tokenizer.token_text(id));
  return tokens;
}

class PiecesTest : public ::testing::Test {
 protected:
  static std::vector<Piece> with_letters() {
    return {{"<unk>", 0, Piece::unknown},
            {"</s>", 0, Piece::control},
            {"a", -100, Piece::normal},
            {"b", -101, Piece::normal},
            {"c", -102, Piece::normal}};
  }
  static std::vector<Piece> with(const std::vector<std::pair<std::string, float>>& more) {
    std::vector<Piece> pieces = with_letters();
    for (const auto& [text, score] : more) pieces.push_back({text, score, Piece::normal});
    return pieces;
  }
  static json file_of(const std::vector<Piece>& pieces) { return json_of_pieces(pieces, false, "a test").file(); }
  static json merges_of(const std::vector<Piece>& pieces) { return file_of(pieces)["model"]["merges"]; }
  static BpeTokenizer tokenizer_of(const std::vector<Piece>& pieces) {
    return BpeTokenizer(read_tokenizer_json(file_of(pieces), "a test"));
  }
  static void expect_no_json(const std::vector<Piece>& pieces, const std::string& part) {
    const std::string told = error_of(ExitCode::data, [&] { file_of(pieces); });
    EXPECT_TRUE(holds(told, "a test: ")) << told;
    EXPECT_TRUE(holds(told, part)) << told;
    EXPECT_TRUE(holds(told, "which tokenizer.json cannot say with the same ids")) << told;
  }
};

TEST_F(PiecesTest, ATokenizerJsonMergesAsTheRuleSays) {
  std::mt19937 random(17);
  const auto draw = [&](std::size_t count) { return random() % count; };
  const auto word = [&](std::size_t letters, std::size_t length) {
    std::string text;
    while (text.size() < length) text += static_cast<char>('a' + draw(letters));
    return text;
  };
  std::size_t left_out = 0, refused = 0, runs_of_one_score = 0;
  for (int round = 0; round < 240; ++round) {
    const std::size_t letters = 1 + draw(3);
    const bool ties = round % 4 == 0, runs = round % 4 == 1;
    std::map<std::string, float> scores;
    const auto random_score = [&] { return -static_cast<float>(random() % 1'000'000); };
    for (std::size_t i = 0; i < 3 + draw(12); ++i) {
      scores.emplace(word(letters, 2 + draw(5)), ties ? -static_cast<float>(draw(3)) : random_score());
    }
    if (runs) {  // as real models have them of spaces: all of one score, some lengths missing
      std::erase_if(scores, [](const auto& one) { return one.first.find_first_not_of(one.first[0]) > 20; });
      float score = draw(2) == 0 ? -1e9F : random_score();
      for (const char letter : std::string(draw(3) == 0 ? "ab" : "a")) {
        for (std::size_t length = 2; length < 18; ++length) {
          if (length == 2 || draw(4) != 0) scores[std::string(length, letter)] = score;
        }
        if (draw(2) == 0) score = random_score();
      }
    }
    const std::vector<Piece> pieces = with({scores.begin(), scores.end()});
    std::optional<json> file;
    try {
      file = file_of(pieces);
    } catch (const Error&) {
      EXPECT_TRUE(ties || runs);
      ++refused;
      continue;
    }
    const json& merges = (*file)["model"]["merges"];
    left_out += scores.size() - merges.size();
    runs_of_one_score += runs;
    const BpeTokenizer tokenizer(read_tokenizer_json(*file, "a test"));
    for (int i = 0; i < 40; ++i) {
      std::string text = word(letters, 1 + draw(i % 10 == 0 ? 150 : 20));
      if (i % 2 == 0) text.insert(draw(text.size()), draw(60), 'a');
      const Symbols expected = merged_by_score(text, pieces);
      ASSERT_EQ(tokens_of(tokenizer, text), expected) << text;
      ASSERT_EQ(merged_by_list(text, merges), expected) << text;
    }
  }
  EXPECT_GT(left_out, 150U);
  EXPECT_GT(refused, 20U);
  EXPECT_GT(runs_of_one_score, 40U);
}

TEST_F(PiecesTest, APieceIsMadeInOneWayOnly) {
  // "aa" is made from the left, so nothing ever stands before it that could join it: (a, aa) is never merged.
  const std::vector<Piece> run = with({{"aa", -1}, {"aaa", -2}});
  EXPECT_EQ(merges_of(run), json::parse(R"([["a", "a"], ["aa", "a"]])"));
  EXPECT_EQ(tokens_of(tokenizer_of(run), "aaaab"), (Symbols{"aa", "aa", "b"}));
  EXPECT_EQ(tokens_of(tokenizer_of(run), "aaaaac"), (Symbols{"aa", "aaa", "c"}));
  // A piece of a better score than its own parts; and one that nothing leads to.
  EXPECT_EQ(tokens_of(tokenizer_of(with({{"abc", -1}, {"bc", -2}, {"ab", -3}})), "abcab"), (Symbols{"abc", "ab"}));
  EXPECT_EQ(merges_of(with({{"abc", -1}, {"abca", -2}})).size(), 0U);
}

TEST_F(PiecesTest, OneSentenceForWhatNoTokenizerJsonSays) {
  EXPECT_NO_THROW(file_of(with({{"ab", -1}, {"abc", -2}, {"cba", -2}})));  // "cba" is never made
  expect_no_json(with({{"ab", -1}, {"bc", -1}}), "the pieces 5 and 6 have one score");
  // Runs of one character may share a score, if they all have it and nothing else has.
  EXPECT_NO_THROW(file_of(with({{"aa", -1}, {"aaa", -1}, {"bb", -2}, {"bbb", -2}, {"abb", -3}})));
  expect_no_json(with({{"aa", -1}, {"bb", -1}}), "the pieces 5 and 6 have one score");
  expect_no_json(with({{"aa", -1}, {"bb", -1}, {"aaa", -2}}), "the pieces 5 and 6 have one score");
  expect_no_json(with({{"aa", -1}, {"aaa", -1}, {"aaaaa", -2}}), "the pieces 5 and 6 have one score");
  expect_no_json(with({{"ab", -1}, {"ab", -2}}), "the pieces 5 and 6 are the same");
  expect_no_json(with({{"ax", -1}}), "'x' stands in a piece and is none itself");
  std::vector<Piece> pieces = with({{"ab", -1}});
  pieces.push_back({"<tool>", 0, Piece::user_defined});
  expect_no_json(pieces, "the piece '<tool>' was defined by users");
  pieces = with_letters();
  pieces.push_back({"x", 0, Piece::control});
  expect_no_json(pieces, "piece 5 is a character and no text");
  pieces = with_letters();
  pieces.erase(pieces.begin());
  expect_no_json(pieces, "neither bytes nor unknown characters have a piece");
  pieces.push_back({"<0x0A>", 0, Piece::byte});
  expect_no_json(pieces, "only 1 of the 256 bytes have pieces");
  pieces.back().text = "<0x0a>";
  expect_no_json(pieces, "the piece of a byte is named <0x0a>");
}

TEST_F(PiecesTest, OneSentenceForPiecesThatAreNone) {
  const auto refusal = [](const std::vector<Piece>& pieces) {
    return error_of(ExitCode::data, [&] { file_of(pieces); });
  };
  EXPECT_TRUE(holds(refusal(with({{"a\xFF", -1}})), "a test: piece 5 is no text"));
  EXPECT_TRUE(holds(refusal(with({{"ab", std::nanf("")}})), "a test: the score of piece 5 is no number"));
  EXPECT_TRUE(holds(refusal(with({{std::string(1025, 'a'), -1}})), "piece 5 has 1025 bytes; at most 1024 are read"));
  EXPECT_EQ(merges_of(with({{std::string(1024, 'a'), -1}})).size(), 0U);
}

}  // namespace
}  // namespace ringtrain
