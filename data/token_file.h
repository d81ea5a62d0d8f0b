// Token files: FILE.h5 (contiguous datasets `tokens` uint16 or uint32, `document_offsets` int64 [documents + 1],
// optional `weights` float32) with FILE.h5.manifest.json next to it (data/token_manifest.h). Size and hash are verified
// before any dataset is read. Data that is then read at the manifest's offsets is compared with what was hashed
// (data/block_checksums.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ringtrain {

/// Returns the last token of a vocabulary, which ends every document of a file that does not name another token.
constexpr std::int32_t last_token(std::int64_t vocab_size) {
  return static_cast<std::int32_t>(vocab_size - 1);
}

/// A verified, open token file; read-only. read() may be called from several threads.
class TokenFile {
 public:
  /// Opens and verifies; keeps 8 bytes for each 32 KiB of the file. Throws Error(data) that names the file and the
  /// problem: missing, empty, truncated, changed (both hashes), a token >= vocab_size, or offsets that do not increase.
  static std::unique_ptr<TokenFile> open(const std::string& path);
  virtual ~TokenFile() = default;

  /// Returns the name under which it was opened.
  virtual const std::string& path() const = 0;
  /// Returns the largest id that a token may have, plus one.
  virtual std::int64_t vocab_size() const = 0;
  /// Returns the token that ends a document.
  virtual std::int32_t end_of_document() const = 0;
  /// Returns the token that begins each document; -1: none does; nothing: unknown.
  virtual std::optional<std::int32_t> document_start() const { return std::nullopt; }
  /// Returns the identity of the tokenizer that made the file (data/tokenizer/tokenizer.h); "" if unknown.
  virtual const std::string& tokenizer_hash() const = 0;
  /// Returns the average number of bytes of text per token of this document, not counting the tokens that begin and end
  /// it; 0 if unknown.
  virtual double bytes_per_token(std::int64_t document) const = 0;
  /// Returns the number of tokens.
  virtual std::int64_t token_count() const = 0;  // of all documents, train then validation
  /// Returns whether tokens have individual loss weights.
  virtual bool has_weights() const = 0;
  /// Returns offsets [documents + 1] of all documents, train then validation.
  virtual std::span<const std::int64_t> document_offsets() const = 0;
  /// Returns the index of the first validation document; documents before it are for training.
  virtual std::int64_t first_validation_document() const = 0;
  /// Returns the hash of the whole file, 32 hexadecimal digits.
  virtual const std::string& hash() const = 0;
  // Both throw Error(data) if the file has changed since it was opened.
  /// Reads tokens [begin, begin + out.size()).
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;
  /// Reads their loss weights (1 if the file has none).
  virtual void read_weights(std::int64_t begin, std::span<float> out) const = 0;
};

/// Throws Error(data) that names the file and the invalid numbers: offsets that do not increase or do not cover the
/// tokens, a validation part beyond the documents, a token beyond the vocabulary, or an invalid weight. Sources of any
/// kind must pass this check before training.
void check_tokens(const TokenFile& file);

}  // namespace ringtrain
