// Presents tokens in a program's memory as a token file, for data that no file contains. Other kinds of sources derive
// from TokenFile themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/token_file.h"

namespace ringtrain {

/// The argument of tokens_in_memory().
struct MemoryTokens {
  std::int64_t vocab_size = 257;          // its last token ends every document
  std::vector<std::int32_t> tokens;       // of all documents, each with its end; each in [0, vocab_size)
  std::vector<std::int64_t> offsets;      // [documents + 1]: where documents begin, and the number of tokens
  std::int64_t validation_documents = 0;  // the last ones, which are never trained on
  std::vector<float> weights = {};        // of the loss, one per token; empty: 1 each
};

/// Returns them as a read-only file with that name, which messages use. Its hash is that of the numbers, so a run
/// resumes only with the same tokens. Throws Error(data) with the invalid numbers.
std::unique_ptr<TokenFile> tokens_in_memory(const std::string& name, MemoryTokens tokens);

}  // namespace ringtrain
