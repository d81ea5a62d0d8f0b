// Tokens that a program has in its memory, as a token file: for data that no file holds. Sources of other kinds derive
// from TokenFile themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/token_file.h"

namespace ringtrain {

/// What tokens_in_memory() takes.
struct MemoryTokens {
  std::int64_t vocab_size = 257;          // its last token ends every document
  std::vector<std::int32_t> tokens;       // of all documents, each with its end; each in [0, vocab_size)
  std::vector<std::int64_t> offsets;      // [documents + 1]: where documents begin, and the number of tokens
  std::int64_t validation_documents = 0;  // the last ones, which training never sees
  std::vector<float> weights = {};        // of the loss, one a token; empty: 1 each
};

/// Returns them as a read-only file of that name, which stands for it in messages. Its hash is that of the numbers, so
/// a run resumes with the same tokens alone. Throws Error(data) with the numbers at fault.
std::unique_ptr<TokenFile> tokens_in_memory(const std::string& name, MemoryTokens tokens);

}  // namespace ringtrain
