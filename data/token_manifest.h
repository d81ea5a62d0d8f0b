// FILE.h5.manifest.json: everything that is read about a token file except the elements of its datasets, which are read
// at the offsets in the manifest. It contains a hash of itself. Strict: every key must be known and have its type, and
// every key that is not optional must exist, so a garbled manifest is an error and never leads to a guess.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/storage/hdf5_datasets.h"

namespace ringtrain {

inline constexpr std::int64_t token_format_version = 2;

struct TokenManifest {
  std::int64_t bytes = 0;  // of the file
  std::string hash;        // XXH3-128 of the file
  std::int64_t vocab_size = 0;
  std::optional<std::int64_t> end_of_document = {};  // nothing: the vocabulary's last
  std::optional<std::vector<std::int64_t>> document_start =
      {};  // what begins each: a token or none; nothing: not known
  std::int64_t first_validation_document = 0;
  std::string tokenizer_hash = {};              // "": unknown
  std::optional<std::int64_t> byte_count = {};  // of the text of all tokens; nothing: unknown
  std::vector<Hdf5Dataset> datasets = {};       // they are within the file

  template <class Self, class Visit>
  static void visit_members(Self& self, Visit& visit) {
    visit("bytes", self.bytes);
    visit.hash("xxh3_128", self.hash);
    visit("vocab_size", self.vocab_size);
    visit.optional("end_of_document", self.end_of_document);
    visit.optional("document_start", self.document_start);
    visit("first_validation_document", self.first_validation_document);
    visit.optional_hash("tokenizer_hash", self.tokenizer_hash);
    visit.optional("byte_count", self.byte_count);
    visit("datasets", self.datasets);
  }
};

std::string manifest_path(const std::string& token_file);
/// Returns the manifest of a token file; Error(data) if it is missing or garbled.
TokenManifest read_manifest(const std::string& token_file);
/// Returns the first characters of every manifest of a token file, for all versions.
std::string token_manifest_head();
std::string to_json(const TokenManifest& manifest);

}  // namespace ringtrain
