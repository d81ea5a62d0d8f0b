// Writes tokenizer.json of Hugging Face's tokenizers, version 1.0: the parts that are the same in every such file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

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
  /// Returns the file's content.
  nlohmann::json file() const;
};

/// Returns the byte tokenizer as a file: a token for each byte, no merges, and `<|endoftext|>` as 256. load_tokenizer()
/// makes the byte tokenizer of it again.
nlohmann::json byte_tokenizer_json();

}  // namespace ringtrain
