// The encoder of byte-pair tokenizers, with its scratch memory and its cache of pieces.
#pragma once

#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/piece_cache.h"
#include "data/tokenizer/tokenizer.h"

namespace ringtrain {

class BpeEncoder final : public Encoder {
 public:
  BpeEncoder(const BpeModel& model, SpecialTokens special);
  std::int64_t encode(std::string_view text, std::vector<std::int32_t>& ids, Preceding preceding) override;

 private:
  /// Encodes a stretch between two added tokens.
  void encode_plain(std::string_view text, Preceding preceding, std::vector<std::int32_t>& ids);
  /// Encodes normalized text: splits it into pieces.
  void encode_bytes(std::string_view text, std::vector<std::int32_t>& ids);
  void encode_characters(std::string_view text, std::vector<std::int32_t>& ids);
  /// readable: the number of readable bytes from the start of piece.
  void encode_piece(std::string_view piece, std::size_t readable, std::vector<std::int32_t>& ids);
  /// Stores the tokens of a piece in symbols_.
  void merge_piece(std::string_view piece);
  void start_with_bytes(std::string_view piece);
  void start_with_characters(std::string_view piece);
  /// Appends the tokens of a character's bytes. Returns false if some bytes have none but unknown characters do. Throws
  /// Error(data) if neither exists.
  bool put_bytes(std::string_view character, std::vector<std::int32_t>& symbols) const;

  const BpeModel& model_;
  bool parse_special_;
  std::vector<Splitter> splitters_;
  Merger merger_;
  PieceCache cache_;
  std::string lossy_, normalized_, spaced_;
  std::vector<TextSegment> segments_, inner_segments_;
  std::vector<std::size_t> ends_, split_ends_, part_ends_;
  std::vector<std::int32_t> symbols_;
};

}  // namespace ringtrain
