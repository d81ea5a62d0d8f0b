// Text files to a token file: every file is a document of byte tokens; documents are shuffled by a counter-based
// permutation, and the last of them are the validation part. Memory does not grow with the texts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/sources.h"

namespace ringtrain {

/// What a prepared token file holds, for people to read.
struct CorpusSummary {
  std::int64_t documents = 0, tokens = 0;                        // all
  std::int64_t validation_documents = 0, validation_tokens = 0;  // thereof
  std::int64_t bytes = 0;                                        // of text
  std::vector<std::int64_t> lengths;                             // tokens of each document, in the file's order
  std::string hash;                                              // of the token file
  std::string sources_hash;                                      // one hash over all sources' hashes
};

/// Return how many of `documents` are the validation part: the rounded share, at least 1 if the fraction is above 0,
/// but never all of them.
std::int64_t validation_count(std::int64_t documents, double fraction);

/// Told as documents are written: documents and tokens so far.
using WriteProgress = std::function<void(std::int64_t documents, std::int64_t tokens)>;

struct PrepareOptions {
  std::string output;
  double validation_fraction = 0.1;
  std::uint64_t seed = 1234;
};

/// Writes the token file of these sources. Throws Error(usage) if the output exists or cannot be written, Error(data)
/// if a source changed since it was hashed.
CorpusSummary prepare_text(const SourceList& sources, const PrepareOptions& options, const WriteProgress& progress);

}  // namespace ringtrain
