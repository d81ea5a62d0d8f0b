// Tokens in a program's memory are equivalent to a token file; and invalid numbers are refused by name.
#include "data/tokens_in_memory.h"

#include <gtest/gtest.h>

#include <functional>

#include "framework/error.h"

namespace ringtrain {
namespace {

MemoryTokens two_documents() {
  return {.vocab_size = 9, .tokens = {1, 2, 8, 3, 4, 5, 8}, .offsets = {0, 3, 7}, .validation_documents = 1};
}

TEST(TokensInMemory, SayWhatTheyAre) {
  const auto file = tokens_in_memory("own", two_documents());
  EXPECT_EQ(file->path(), "own");
  EXPECT_EQ(file->vocab_size(), 9);
  EXPECT_EQ(file->end_of_document(), 8);
  EXPECT_EQ(file->token_count(), 7);
  EXPECT_EQ(file->first_validation_document(), 1);
  std::vector<std::int32_t> tokens(3);
  file->read(2, tokens);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{8, 3, 4}));
  std::vector<float> weights(2);
  EXPECT_FALSE(file->has_weights());
  file->read_weights(5, weights);
  EXPECT_EQ(weights, (std::vector<float>{1, 1}));
}

TEST(TokensInMemory, TheirHashIsThatOfEveryNumber) {
  const std::string hash = tokens_in_memory("a", two_documents())->hash();
  EXPECT_EQ(tokens_in_memory("b", two_documents())->hash(), hash);
  EXPECT_EQ(hash.size(), 32U);
  const std::vector<std::function<void(MemoryTokens&)>> changes{
      [](MemoryTokens& t) { t.tokens[4] = 6; }, [](MemoryTokens& t) { t.offsets[1] = 2; },
      [](MemoryTokens& t) { t.vocab_size = 10; }, [](MemoryTokens& t) { t.validation_documents = 0; },
      [](MemoryTokens& t) { t.weights = std::vector<float>(7, 1); }};
  for (const auto& change : changes) {
    MemoryTokens other = two_documents();
    change(other);
    EXPECT_NE(tokens_in_memory("a", other)->hash(), hash);
  }
}

TEST(TokensInMemory, NumbersThatMakeNoFileAreRefused) {
  const std::vector<std::pair<std::function<void(MemoryTokens&)>, const char*>> wrong{
      {[](MemoryTokens& t) { t.tokens[4] = 9; }, "own: token 4 is 9, beyond the file's vocabulary of 9"},
      {[](MemoryTokens& t) { t.tokens[0] = -1; }, "own: token 0 is 4294967295"},
      {[](MemoryTokens& t) {
         t.offsets = {0, 3};
       },
       "its documents cover tokens 0 to 3, but it has tokens 0 to 7"},
      {[](MemoryTokens& t) {
         t.offsets = {0, 3, 3, 7};
       },
       "document 1 starts at token 3 and ends at token 3"},
      {[](MemoryTokens& t) { t.validation_documents = 2; }, "it has 2 documents, 2 of them for validation"},
      {[](MemoryTokens& t) { t.vocab_size = 1; }, "a vocabulary must have 2 to"},
      {[](MemoryTokens& t) { t.weights = {1}; }, "1 weights for 7 tokens"},
      {[](MemoryTokens& t) { t.weights = {1, 1, -1, 1, 1, 1, 1}; }, "the weight of token 2 is -1"}};
  for (const auto& [change, sentence] : wrong) {
    MemoryTokens tokens = two_documents();
    change(tokens);
    try {
      tokens_in_memory("own", tokens);
      FAIL() << sentence;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_NE(std::string(error.what()).find(sentence), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace ringtrain
