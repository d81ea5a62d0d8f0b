// What a byte-pair tokenizer is, read from whatever file form: the loaders fill this in, BpeTokenizer runs it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"

namespace ringtrain {

struct BpeSpec {
  /// What merging starts from.
  enum class Alphabet {
    bytes,       // byte-level BPE: GPT-2 and all after it
    characters,  // SentencePiece: code points, spaces written as U+2581, unknown ones as bytes
  };
  /// Where a text gets a space in front.
  enum class Prefix {
    never,
    first,   // at a document's start
    always,  // also after every added token
  };
  /// One way of cutting, applied to what the one before has left.
  struct Split {
    enum class Kind { pattern, individual_digits, digits } kind = Kind::pattern;
    std::string pattern;
  };

  Alphabet alphabet = Alphabet::bytes;
  std::string where;                // the file, for messages
  std::vector<std::string> tokens;  // [ids] their bytes; "" for an id that is none
  std::vector<Merge> merges;
  std::vector<AddedToken> added;    // their ids may be beyond tokens
  bool whole_pieces_first = false;  // a piece that is a token is not merged ("ignore_merges")
  bool nfc = false;
  std::vector<Split> splits;

  // Alphabet::bytes alone.
  bool space_in_front = false;  // "add_prefix_space": before a stretch that starts with none

  // Alphabet::characters alone.
  Prefix prefix = Prefix::never;
  bool prefix_before_space = false;             // also where the text starts with a space already
  bool split_at_spaces = false;                 // every U+2581 starts a piece
  std::vector<std::string> extra_symbols;       // ids from tokens.size() on: characters that merge and are no tokens
  std::array<std::int32_t, 256> byte_tokens{};  // -1: none
  std::int32_t unknown = -1;
  bool fuse_unknown = false;

  std::string end_of_document;  // content of a special token; "": the first of the known names

  /// Return what Tokenizer::kind() says.
  const char* kind() const { return alphabet == Alphabet::bytes ? "byte-level BPE" : "SentencePiece BPE"; }
};

/// Throws Error(data) that begins with spec.where if it has no tokens, or ids that are none of its own.
void check_spec(const BpeSpec& spec);

/// Return what Tokenizer::identity() says: no table needs to be made for it.
std::string identity_of(const BpeSpec& spec);

}  // namespace ringtrain
