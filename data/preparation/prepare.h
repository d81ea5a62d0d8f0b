// Turns texts into a token file: every text file and every line of a JSONL file is a document. Documents are tokenized
// in parallel and shuffled by a counter-based permutation; the last of them are the validation part. The file does not
// depend on the number of threads. Memory does not grow with the texts, except for a few numbers per document.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/preparation/json_documents.h"
#include "data/preparation/sources.h"
#include "data/tokenizer/tokenizer.h"

namespace ringtrain {

/// The content of a prepared token file, for users to read.
struct CorpusSummary {
  std::int64_t documents = 0, tokens = 0;                        // all
  std::int64_t validation_documents = 0, validation_tokens = 0;  // of these
  std::int64_t bytes = 0;                                        // of text
  std::vector<std::int64_t> lengths;                             // tokens of each document, in the file's order
  std::string hash;                                              // of the token file
  std::string sources_hash;                                      // one hash over all sources' hashes
  // Parts of the texts that were changed or left out.
  std::int64_t learned_tokens = 0;                             // with a weight, of all
  std::int64_t replaced = 0;                                   // ill-formed sequences of UTF-8, and unpaired surrogates
  std::int64_t broken_lines = 0, empty_lines = 0, binary = 0;  // of JSONL; binary: texts with a NUL byte, decompressed
};

/// Returns how many of `documents` are the validation part: the rounded share, at least 1 if the fraction is above 0,
/// but never all of them.
std::int64_t validation_count(std::int64_t documents, double fraction);

/// Receives the number of bytes of the sources that have been tokenized so far.
using ReadProgress = std::function<void(std::int64_t bytes)>;
/// Receives the number of tokens that have been written so far, and their total.
using CopyProgress = std::function<void(std::int64_t tokens, std::int64_t all)>;

struct PrepareOptions {
  std::string output;
  double validation_fraction = 0.1;
  std::uint64_t seed = 1234;
};

/// How texts become tokens.
struct TextOptions {
  const Tokenizer* tokenizer = nullptr;
  SpecialTokens special = SpecialTokens::text;
  std::optional<std::int32_t> document_start;  // before each document, if any
  std::int32_t document_end = 0;               // after each
  JsonRules json;
  bool skip_broken_lines = false;
  int threads = 1;
};

/// Writes the token file of these sources. Throws Error(usage) if the output exists or cannot be written, and
/// Error(data) if a source has changed since it was hashed, is damaged, or contains a broken line (named file:line).
CorpusSummary prepare_text(const SourceList& sources, const PrepareOptions& options, const TextOptions& text,
                           const ReadProgress& reading, const CopyProgress& writing);

}  // namespace ringtrain
