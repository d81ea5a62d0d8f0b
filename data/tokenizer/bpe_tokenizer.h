// Byte-pair tokenizers of both families, byte-level and SentencePiece's, run from a BpeSpec. The order of steps is that
// of Hugging Face's tokenizers: added tokens of the raw text, normalization, added tokens of the normalized text,
// splitting, merging.
#pragma once

#include <memory>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/tokenizer.h"

namespace ringtrain {

class BpeTokenizer final : public Tokenizer {
 public:
  /// Throws Error(data) that begins with spec.where if its parts do not fit together.
  explicit BpeTokenizer(BpeSpec spec);
  /// Sets the token that ends a document, if there is one with this content.
  void name_end_of_document(std::string_view content) { end_of_document_ = find_special(content); }

  std::unique_ptr<Encoder> make_encoder(SpecialTokens special) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string token_text(std::int32_t id) const override;
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::optional<std::int32_t> find_special(std::string_view content) const override;
  bool is_special(std::int32_t id) const override { return special_.contains(id); }
  std::optional<std::int32_t> end_of_document() const override { return end_of_document_; }
  std::optional<std::int32_t> begin_of_text() const override { return model_.spec.begin_of_text; }
  std::optional<std::int32_t> end_of_text() const override { return model_.spec.end_of_text; }
  std::string_view kind() const override { return model_.spec.kind(); }
  const std::string& identity() const override { return identity_; }
  std::size_t find_cut(std::string_view text) const override;

 private:
  /// normalized: added tokens that are searched in normalized text.
  void find_cuts(const std::vector<AddedToken>& normalized);

  BpeModel model_;
  std::string identity_;
  std::int64_t vocab_size_ = 0;
  std::unordered_map<std::int32_t, std::string> added_text_;
  std::unordered_set<std::int32_t> special_;
  bool can_cut_ = false;
  std::optional<std::int32_t> end_of_document_;
};

}  // namespace ringtrain
