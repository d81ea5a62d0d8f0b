// What a byte-pair tokenizer is, read from whatever file form: the loaders fill this in, BpeTokenizer runs it.
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

/// How SentencePiece writes a space: U+2581.
inline constexpr std::string_view space_mark = "\xE2\x96\x81";

struct BpeSpec {
  /// What merging starts from.
  enum class Alphabet {
    bytes,       // byte-level BPE: GPT-2 and all after it
    characters,  // SentencePiece: code points, spaces written as U+2581, unknown ones as bytes
  };
  /// Where Metaspace puts a space in front.
  enum class Prefix {
    never,
    first,   // at a document's start
    always,  // also after every added token
  };
  /// One way of cutting, applied to what the one before has left.
  struct Split {
    enum class Kind { pattern, individual_digits, digits } kind = Kind::pattern;
    std::string pattern;  // of Kind::pattern

    /// Returns the regular expression that cuts so.
    std::string regex() const;
  };

  Alphabet alphabet = Alphabet::bytes;
  std::string where;                // the file, for messages
  std::vector<std::string> tokens;  // [ids] their bytes; "" for an id that is none
  std::vector<Merge> merges;
  std::vector<AddedToken> added;           // their ids may be beyond tokens
  std::vector<std::int32_t> never_merged;  // tokens that stand for no text, whatever theirs is
  bool whole_pieces_first = false;         // a piece that is a token is not merged ("ignore_merges")
  bool nfc = false;
  std::vector<Split> splits;

  // Alphabet::bytes alone.
  bool space_in_front = false;  // "add_prefix_space": before a stretch that starts with none

  // Alphabet::characters alone.
  bool prepend_mark = false;      // normalising puts a U+2581 in front of a text, and after every raw added token
  bool mark_spaces = false;       // normalising writes spaces as U+2581
  bool metaspace = false;         // what stands between added tokens gets its marks after normalising:
  Prefix prefix = Prefix::never;  // ... one in front, unless there is one
  bool split_at_spaces = false;   // ... and every U+2581 starts a piece
  std::array<std::int32_t, 256> byte_tokens{};  // -1: none
  std::int32_t unknown = -1;
  bool fuse_unknown = false;

  std::string end_of_document;  // content of a special token; "": the first of the known names
  // What the tokenizer itself puts before and after the ids of a text. It is not part of the identity.
  std::optional<std::int32_t> begin_of_text, end_of_text;

  /// Returns whether encoding puts a space before a document.
  bool has_prefix() const { return prepend_mark || prefix != Prefix::never; }
  /// Returns what Tokenizer::kind() says.
  const char* kind() const { return alphabet == Alphabet::bytes ? "byte-level BPE" : "SentencePiece BPE"; }
};

/// Throws Error(damaged) that begins with spec.where if it has no tokens, or ids that are none of its own.
void check_spec(const BpeSpec& spec, ExitCode damaged = ExitCode::data);

/// Returns what Tokenizer::identity() says: no table needs to be made for it.
std::string identity_of(const BpeSpec& spec);

}  // namespace ringtrain
