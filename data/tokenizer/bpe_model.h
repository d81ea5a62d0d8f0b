// A byte-pair tokenizer that is ready to run: its spec with the lookup tables for encoding. BpeTokenizer makes it; its
// encoders share it.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "data/tokenizer/bpe_spec.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/tokenizer.h"

namespace ringtrain {

/// Immutable; used by several threads at once.
struct BpeModel {
  BpeSpec spec;
  std::unordered_map<std::string_view, std::int32_t> id_of;  // of tokens and extra symbols; the keys are views of spec
  std::array<std::int32_t, 256> byte_symbols{};              // of Alphabet::bytes; -1: the byte is left out
  MergeTable merges;
  AddedTokenFinder raw_added, normalized_added;
  std::vector<Splitter> splitters;
  std::unordered_set<char32_t> before_space;  // code points that precede a U+2581 in some token
  bool parts_at_marks = false;  // Alphabet::characters: pieces may be cut before a U+2581 where nothing merges

  /// Returns the normalized form of a stretch of well-formed text: a view of it, or of storage.
  std::string_view normalize(std::string_view text, Preceding preceding, std::string& storage) const;
  /// Returns the text between added tokens with the marks of Metaspace: a view of it, or of storage.
  std::string_view metaspace(std::string_view text, Preceding preceding, std::string& storage) const;
};

}  // namespace ringtrain
