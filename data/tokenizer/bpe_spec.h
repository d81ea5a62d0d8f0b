// The description of a byte-pair tokenizer, independent of the file's format: loaders fill it in, and BpeTokenizer runs
// it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "framework/error.h"

namespace ringtrain {

/// SentencePiece's spelling of a space: U+2581.
inline constexpr std::string_view space_mark = "\xE2\x96\x81";

struct BpeSpec {
  /// The symbols from which merging starts.
  enum class Alphabet {
    bytes,       // byte-level BPE: GPT-2 and its successors
    characters,  // SentencePiece: code points, spaces written as U+2581, unknown ones as bytes
  };
  /// When Metaspace puts a space at the front.
  enum class Prefix {
    never,
    first,   // at a document's start
    always,  // also after every added token
  };
  /// One way of cutting, applied to the pieces of the previous one.
  struct Split {
    enum class Kind { pattern, individual_digits, digits } kind = Kind::pattern;
    std::string pattern;  // of Kind::pattern

    /// Returns the regular expression that cuts this way.
    std::string regex() const;
  };

  Alphabet alphabet = Alphabet::bytes;
  std::string where;                // the file, for messages
  std::vector<std::string> tokens;  // [ids] their bytes; "" for an unused id
  std::vector<Merge> merges;
  std::vector<AddedToken> added;           // their ids may be beyond tokens
  std::vector<std::int32_t> never_merged;  // tokens that do not represent text, whatever their own text is
  bool whole_pieces_first = false;         // a piece that is a token is not merged ("ignore_merges")
  bool nfc = false;
  std::vector<Split> splits;

  // Only for Alphabet::bytes.
  bool space_in_front = false;  // "add_prefix_space": before a stretch that does not start with one

  // Only for Alphabet::characters.
  bool prepend_mark = false;      // normalization puts a U+2581 before a text, and after every raw added token
  bool mark_spaces = false;       // normalization writes spaces as U+2581
  bool metaspace = false;         // the text between added tokens gets its marks after normalization:
  Prefix prefix = Prefix::never;  // ... one at the front, unless it has one
  bool split_at_spaces = false;   // ... and every U+2581 starts a piece
  std::array<std::int32_t, 256> byte_tokens{};  // -1: none
  std::int32_t unknown = -1;
  bool fuse_unknown = false;

  // What the tokenizer itself adds before and after the ids of a text. It is not part of the identity.
  std::optional<std::int32_t> begin_of_text, end_of_text;

  /// Returns whether encoding puts a space before a document.
  bool has_prefix() const { return prepend_mark || prefix != Prefix::never; }
  /// Returns the result of Tokenizer::kind().
  const char* kind() const { return alphabet == Alphabet::bytes ? "byte-level BPE" : "SentencePiece BPE"; }
};

/// Throws Error(damaged) that begins with spec.where if it has no tokens, or ids that do not exist.
void check_spec(const BpeSpec& spec, ExitCode damaged = ExitCode::data);

/// Returns the result of Tokenizer::identity(), without making any table.
std::string identity_of(const BpeSpec& spec);

}  // namespace ringtrain
