// Tokenizers: text to token ids and back. A tokenizer is immutable and shared; what encodes is an Encoder, one a
// thread, with a memory of the pieces it has seen. Ids depend on the text alone, never on what was encoded before.
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

/// What "<|endoftext|>" within a text is: its letters, or the token.
enum class SpecialTokens { text, parse };
/// What stands before a text: nothing (it starts a document), a special token, or text that find_cut() cut off.
enum class Preceding { nothing, token, text };

/// Used by one thread; the tokenizer must outlive it.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// Appends the ids of text. Some tokenizers put a space before it, depending on what precedes it. Ill-formed UTF-8 is
  /// replaced by U+FFFD, one for each maximal subpart, but by the byte tokenizer, which keeps all bytes. Returns how
  /// many were replaced. Throws Error(data) if a pattern gives up, or for a piece that would need too much memory.
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
  /// Returns the bytes of some ids: not always whole characters. Throws Error(data) that names an id beyond the
  /// vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// Returns the bytes of one id as it stands within a text.
  virtual std::string token_text(std::int32_t id) const = 0;
  /// Returns the largest id plus one. A model's vocabulary may be larger.
  virtual std::int64_t vocab_size() const = 0;
  /// Returns the id of a special token by its content.
  virtual std::optional<std::int32_t> find_special(std::string_view content) const = 0;
  /// Returns whether an id is a special token's.
  virtual bool is_special(std::int32_t id) const = 0;
  /// Returns the token that ends a document, if the tokenizer has one that is known by name.
  virtual std::optional<std::int32_t> end_of_document() const = 0;
  // What its post-processor puts before and after a text, as AutoTokenizer's ids have it. encode() gives neither.
  virtual std::optional<std::int32_t> begin_of_text() const { return std::nullopt; }
  virtual std::optional<std::int32_t> end_of_text() const { return std::nullopt; }
  /// Returns "bytes", "byte-level BPE" or "SentencePiece BPE".
  virtual std::string_view kind() const = 0;
  /// Returns a hash of all that ids depend on, 32 hexadecimal digits: files of the same tokenizer agree in it.
  virtual const std::string& identity() const = 0;
  /// Returns the last place where a text, well formed or not, may be cut so that both halves give the ids of the whole;
  /// 0 if there is none.
  virtual std::size_t find_cut(std::string_view text) const = 0;
};

/// Returns whether load_tokenizer() would look for a tokenizer in what stands at path: a file, or a folder that holds
/// one, in a form that is read or not.
bool holds_tokenizer(const std::string& path);
// These throw Error(data) that names the file and what in it is not supported (of other forms it says how to make a
// tokenizer.json of them), and Error(damaged) that names the file and what in it is damaged. Where a file belongs to a
// model, its damage has the exit code of a damaged model.

/// Returns the text of a tokenizer.json.
std::string read_tokenizer_file(const std::string& path, ExitCode damaged = ExitCode::data);
/// Loads a tokenizer: "bytes"; tokenizer.json, or a folder that holds it.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path, ExitCode damaged = ExitCode::data);
/// Returns the identity of the tokenizer that load_tokenizer() would load, without making the tables that encoding
/// needs. Throws as it does, but for a pattern that does not compile, or bytes that have no token.
std::string read_tokenizer_identity(const std::string& path, ExitCode damaged = ExitCode::data);

}  // namespace ringtrain
