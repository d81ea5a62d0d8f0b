// Tokenizers: text to token ids and back. A tokenizer is immutable and shared; each thread encodes with its own
// Encoder, which caches pieces. Ids depend only on the text, never on what was encoded before.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/error.h"

namespace ringtrain {

/// How "<|endoftext|>" within a text is encoded: as its letters, or as the token.
enum class SpecialTokens { text, parse };
/// What precedes a text: nothing (it starts a document), a special token, or text that find_cut() cut off.
enum class Preceding { nothing, token, text };

/// Used by one thread; the tokenizer must outlive it.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// Appends the ids of text. Some tokenizers put a space before it, depending on what precedes it. Ill-formed UTF-8 is
  /// replaced by U+FFFD, one for each maximal subpart; only the byte tokenizer keeps all bytes. Returns how many were
  /// replaced. Throws Error(data) if a pattern reaches its limit, or for a piece that would need too much memory.
  virtual std::int64_t encode(std::string_view text, std::vector<std::int32_t>& ids,
                              Preceding preceding = Preceding::nothing) = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Returns an encoder for one thread. The tokenizer must outlive it.
  virtual std::unique_ptr<Encoder> make_encoder(SpecialTokens special) const = 0;
  /// Returns the ids of a whole text.
  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special = SpecialTokens::text) const;
  /// Returns the bytes of some ids, which are not always whole characters. Throws Error(data) that names an id beyond
  /// the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// Returns the bytes of one id within a text.
  virtual std::string token_text(std::int32_t id) const = 0;
  /// Returns the largest id plus one. A model's vocabulary may be larger.
  virtual std::int64_t vocab_size() const = 0;
  /// Returns the id of a special token by its content.
  virtual std::optional<std::int32_t> find_special(std::string_view content) const = 0;
  /// Returns whether an id is that of a special token.
  virtual bool is_special(std::int32_t id) const = 0;
  /// Returns the token that ends a document, if the tokenizer has one with a known name.
  virtual std::optional<std::int32_t> end_of_document() const = 0;
  // The tokens that its post-processor adds before and after a text, as in AutoTokenizer's ids. encode() adds neither.
  virtual std::optional<std::int32_t> begin_of_text() const { return std::nullopt; }
  virtual std::optional<std::int32_t> end_of_text() const { return std::nullopt; }
  /// Returns "bytes", "byte-level BPE" or "SentencePiece BPE".
  virtual std::string_view kind() const = 0;
  /// Returns a hash of everything on which ids depend, 32 hexadecimal digits: files of the same tokenizer have the
  /// same.
  virtual const std::string& identity() const = 0;
  /// Returns the last position at which a text, well formed or not, may be cut such that both halves give the ids of
  /// the whole; 0 if there is none.
  virtual std::size_t find_cut(std::string_view text) const = 0;
};

/// Returns whether load_tokenizer() would look for a tokenizer at path: a file, or a folder that contains one, in a
/// format that is supported or not.
bool holds_tokenizer(const std::string& path);
// These throw Error(data) that names the file and the unsupported feature in it (for other formats, it says how to make
// a tokenizer.json), and Error(damaged) that names the file and the damaged member. If a file belongs to a model, its
// damage has the exit code of a damaged model.

/// Returns the text of a tokenizer.json.
std::string read_tokenizer_file(const std::string& path, ExitCode damaged = ExitCode::data);
/// Loads a tokenizer: "bytes"; tokenizer.json, or a folder that holds it.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path, ExitCode damaged = ExitCode::data);
/// Returns the identity of the tokenizer that load_tokenizer() would load, without making the tables for encoding.
/// Throws the same errors, except those for a pattern that does not compile, or bytes that have no token.
std::string read_tokenizer_identity(const std::string& path, ExitCode damaged = ExitCode::data);

}  // namespace ringtrain
