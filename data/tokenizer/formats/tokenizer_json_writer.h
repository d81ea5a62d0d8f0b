// Writes tokenizer.json of Hugging Face's tokenizers, version 1.0: the parts that are the same in every such file, and
// SentencePiece's BPE as a whole.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/tokenizer/bpe_spec.h"

namespace ringtrain {

/// The parts that differ. Lists are lists and flags are flags; a normalizer or decoder that is null does nothing.
struct TokenizerJson {
  nlohmann::json added_tokens = nlohmann::json::array();
  nlohmann::json normalizer, pre_tokenizer, post_processor, decoder;
  nlohmann::json vocabulary = nlohmann::json::object();  // ids by token
  nlohmann::json merges = nlohmann::json::array();
  nlohmann::json unknown;  // the token's text, or null
  bool fuse_unknown = false, byte_fallback = false, whole_pieces_first = false;

  void add(const std::string& content, std::int64_t id, bool special);
  /// Puts tokens at the ends of every text, as transformers does unless it is told not to: begin and end are ids of
  /// tokens that the vocabulary has.
  void put_around(std::optional<std::int64_t> begin, std::optional<std::int64_t> end);
  /// Returns the file's content.
  nlohmann::json file() const;
};

/// Returns the byte tokenizer as a file: a token for each byte, no merges, and `<|endoftext|>` as 256. load_tokenizer()
/// makes the byte tokenizer of it again.
nlohmann::json byte_tokenizer_json();

/// Returns what spec_of_pieces() made as a file from which read_tokenizer_json() reads the same identity, and which
/// gives tokenizers the ids of SentencePiece. Throws Error(data) that begins with spec.where and says why there is no
/// such file: pieces of one score, of one text, that users defined, or characters that are no pieces.
TokenizerJson json_of_pieces(const BpeSpec& spec);

}  // namespace ringtrain
