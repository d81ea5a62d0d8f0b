// Byte-pair tokenizers of both families, byte-level and SentencePiece's, run from a BpeSpec. The order of things is
// that of Hugging Face's tokenizers: added tokens of the raw text, normalisation, added tokens of the normalised text,
// splitting, merging.
#pragma once

#include <memory>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "data/tokenizer/bpe_spec.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/tokenizer.h"

namespace ringtrain {

class BpeTokenizer final : public Tokenizer {
 public:
  /// Throws Error(data) that begins with spec.where if the parts do not fit each other.
  explicit BpeTokenizer(BpeSpec spec);

  std::unique_ptr<Encoder> make_encoder(SpecialTokens special) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string token_text(std::int32_t id) const override;
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::optional<std::int32_t> find_special(std::string_view content) const override;
  bool is_special(std::int32_t id) const override { return special_.contains(id); }
  std::optional<std::int32_t> end_of_document() const override { return end_of_document_; }
  const std::string& kind() const override { return kind_; }
  const std::string& identity() const override { return identity_; }
  std::size_t find_cut(std::string_view text) const override;

 private:
  friend class BpeEncoder;

  void check() const;
  void find_cuts();
  void choose_end_of_document();
  std::string describe() const;
  /// Return the normalised form of a stretch of well-formed text: a view of it, or of storage.
  std::string_view normalise(std::string_view text, bool first, std::string& storage) const;

  BpeSpec spec_;
  std::string kind_, identity_;
  std::int64_t vocab_size_ = 0;
  std::unordered_map<std::string_view, std::int32_t> id_of_;  // of tokens and extra symbols; views of spec_
  std::unordered_map<std::int32_t, std::string> added_text_;
  std::unordered_set<std::int32_t> special_;
  std::array<std::int32_t, 256> byte_symbols_{};  // of Alphabet::bytes; -1: a byte that is left out
  MergeTable merges_;
  AddedTokenFinder raw_added_, normalised_added_;
  std::vector<std::unique_ptr<Splitter>> splitters_;
  std::unordered_set<char32_t> before_space_;  // code points that some token holds before a U+2581
  bool can_cut_ = false;
  std::optional<std::int32_t> end_of_document_;
};

}  // namespace ringtrain
