#include "data/tokenizer/bpe_encoder.h"

#include <algorithm>

#include "framework/error.h"
#include "framework/text/utf8.h"

namespace ringtrain {

constexpr std::size_t max_piece_bytes = std::size_t{4} << 20;  // merging takes about 20 bytes of memory for each

BpeEncoder::BpeEncoder(const BpeModel& model, SpecialTokens special)
    : model_(model),
      parse_special_(special == SpecialTokens::parse),
      splitters_(model.splitters),
      merger_(model.merges) {}

std::int64_t BpeEncoder::encode(std::string_view text, std::vector<std::int32_t>& ids, Preceding preceding) {
  std::int64_t replaced = 0;
  const std::string_view whole = lossy_utf8(text, lossy_, &replaced);
  segments_.clear();
  model_.raw_added.find(whole, parse_special_, segments_);
  for (const TextSegment& segment : segments_) {
    if (segment.token >= 0) {
      ids.push_back(segment.token);
    } else {
      encode_plain(segment.text, segment.text.data() == whole.data() ? preceding : Preceding::token, ids);
    }
  }
  return replaced;
}

void BpeEncoder::encode_plain(std::string_view text, Preceding preceding, std::vector<std::int32_t>& ids) {
  const std::string_view normal = model_.normalize(text, preceding, normalized_);
  inner_segments_.clear();
  model_.normalized_added.find(normal, parse_special_, inner_segments_);
  for (const TextSegment& segment : inner_segments_) {
    if (segment.token >= 0) {
      ids.push_back(segment.token);
    } else if (model_.spec.alphabet == BpeSpec::Alphabet::bytes) {
      encode_bytes(segment.text, ids);
    } else {
      const Preceding before = segment.text.data() == normal.data() ? preceding : Preceding::token;
      encode_characters(model_.metaspace(segment.text, before, spaced_), ids);
    }
  }
}

void BpeEncoder::encode_bytes(std::string_view text, std::vector<std::int32_t>& ids) {
  if (model_.spec.space_in_front && !text.starts_with(' ')) {
    spaced_ = " " + std::string(text);
    text = spaced_;
  }
  ends_.clear();
  if (splitters_.empty()) {
    ends_.push_back(text.size());
  } else {
    splitters_.front().split(text, ends_);
  }
  for (std::size_t i = 1; i < splitters_.size(); ++i) {
    split_ends_.clear();
    std::size_t begin = 0;
    for (const std::size_t end : ends_) {
      part_ends_.clear();
      splitters_[i].split(text.substr(begin, end - begin), part_ends_);
      for (const std::size_t part : part_ends_) split_ends_.push_back(begin + part);
      begin = end;
    }
    ends_.swap(split_ends_);
  }
  std::size_t begin = 0;
  for (const std::size_t end : ends_) {
    encode_piece(text.substr(begin, end - begin), text.size() - begin, ids);
    begin = end;
  }
}

void BpeEncoder::encode_characters(std::string_view text, std::vector<std::int32_t>& ids) {
  std::size_t begin = 0;
  for (std::size_t at = text.find(space_mark, 1); at != std::string_view::npos; at = text.find(space_mark, at + 1)) {
    // Nothing merges across this border, or the tokenizer itself cuts here.
    bool border = model_.spec.split_at_spaces;
    if (!border && model_.parts_at_marks && !text.substr(0, at).ends_with(space_mark)) {
      const std::size_t before = code_point_border(text, at - 1);
      const char32_t code = decode_utf8(text, before).value;
      border = !model_.before_space.contains(code);
    }
    if (!border) continue;
    encode_piece(text.substr(begin, at - begin), text.size() - begin, ids);
    begin = at;
  }
  encode_piece(text.substr(begin), text.size() - begin, ids);
}

void BpeEncoder::encode_piece(std::string_view piece, std::size_t readable, std::vector<std::int32_t>& ids) {
  if (piece.empty()) return;
  if (piece.size() > PieceCache::max_bytes) {
    merge_piece(piece);
    ids.insert(ids.end(), symbols_.begin(), symbols_.end());
    return;
  }
  const PieceCache::Key key = PieceCache::key_of(piece, readable);
  PieceCache::Entry& entry = cache_.at(key);
  if (!PieceCache::holds(entry, key)) {
    merge_piece(piece);
    if (!PieceCache::put(entry, key, symbols_)) {
      ids.insert(ids.end(), symbols_.begin(), symbols_.end());
      return;
    }
  }
  ids.insert(ids.end(), entry.tokens, entry.tokens + entry.count);
}

void BpeEncoder::merge_piece(std::string_view piece) {
  if (piece.size() > max_piece_bytes) {
    fail(ExitCode::data,
         "the tokenizer makes one piece of {} consecutive bytes, but a piece has at most {}; put spaces or line breaks "
         "into them",
         piece.size(), max_piece_bytes);
  }
  if (model_.spec.whole_pieces_first) {
    if (const auto found = model_.id_of.find(piece); found != model_.id_of.end()) {
      symbols_.assign(1, found->second);
      return;
    }
  }
  symbols_.clear();
  symbols_.reserve(piece.size());
  if (model_.spec.alphabet == BpeSpec::Alphabet::bytes) {
    start_with_bytes(piece);
  } else {
    start_with_characters(piece);
  }
  merger_.merge(symbols_);
}

void BpeEncoder::start_with_bytes(std::string_view piece) {
  bool unknown = false;         // whether the previous byte is
  for (const char c : piece) {  // some vocabularies do not have control characters; the reference leaves these out
    std::int32_t symbol = model_.byte_symbols[static_cast<unsigned char>(c)];
    const bool known = symbol >= 0;
    if (!known && !(unknown && model_.spec.fuse_unknown)) symbol = model_.spec.unknown;
    if (symbol >= 0) symbols_.push_back(symbol);
    unknown = !known;
  }
}

void BpeEncoder::start_with_characters(std::string_view piece) {
  const BpeSpec& spec = model_.spec;
  bool waiting = false;  // whether an unknown character is not in symbols_ yet; bytes may precede it, as in tokenizers
  const auto put_waiting = [&] {
    if (waiting) symbols_.push_back(spec.unknown);
    waiting = false;
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::uint32_t bytes = decode_utf8(piece, at).bytes;
    const std::string_view character = piece.substr(at, bytes);
    at += bytes;
    if (const auto found = model_.id_of.find(character); found != model_.id_of.end()) {
      put_waiting();
      symbols_.push_back(found->second);
    } else if (!put_bytes(character, symbols_)) {
      if (!spec.fuse_unknown) put_waiting();
      waiting = true;
    }
  }
  put_waiting();
}

bool BpeEncoder::put_bytes(std::string_view character, std::vector<std::int32_t>& symbols) const {
  const BpeSpec& spec = model_.spec;
  const auto token_of = [&](char c) { return spec.byte_tokens[static_cast<unsigned char>(c)]; };
  if (std::ranges::all_of(character, [&](char c) { return token_of(c) >= 0; })) {
    for (const char c : character) symbols.push_back(token_of(c));
    return true;
  }
  if (spec.unknown >= 0) return false;
  fail(ExitCode::data, "{} has no token for '{}', none for its bytes, and none for unknown text", spec.where,
       character);
}

}  // namespace ringtrain
