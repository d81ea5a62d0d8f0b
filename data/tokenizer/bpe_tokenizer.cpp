#include "data/tokenizer/bpe_tokenizer.h"

#include <algorithm>

#include "data/tokenizer/bpe_encoder.h"
#include "data/tokenizer/unicode.h"
#include "framework/error.h"
#include "framework/storage/hash.h"

namespace ringtrain {

namespace {

constexpr std::string_view space_mark = "\xE2\x96\x81";  // U+2581
/// What the known families end a document with.
constexpr std::string_view known_ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                           "<\xEF\xBD\x9C"
                                           "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};

}  // namespace

BpeTokenizer::BpeTokenizer(BpeSpec spec) : spec_(std::move(spec)) {
  const bool bytes = spec_.alphabet == BpeSpec::Alphabet::bytes;
  kind_ = bytes ? "byte-level BPE" : "SentencePiece BPE";
  check();
  for (std::size_t i = 0; i < spec_.tokens.size(); ++i) {
    if (!spec_.tokens[i].empty()) id_of_.try_emplace(spec_.tokens[i], static_cast<std::int32_t>(i));
  }
  for (std::size_t i = 0; i < spec_.extra_symbols.size(); ++i) {
    id_of_.try_emplace(spec_.extra_symbols[i], static_cast<std::int32_t>(spec_.tokens.size() + i));
  }
  vocab_size_ = static_cast<std::int64_t>(spec_.tokens.size());
  std::vector<AddedToken> raw, normalised;
  for (const AddedToken& token : spec_.added) {
    vocab_size_ = std::max<std::int64_t>(vocab_size_, token.id + std::int64_t{1});
    added_text_[token.id] = token.content;
    if (token.special) special_.insert(token.id);
    if (token.normalized) {
      std::string storage;
      AddedToken changed = token;
      changed.content = normalise(token.content, true, storage);
      normalised.push_back(std::move(changed));
    } else {
      raw.push_back(token);
    }
  }
  raw_added_ = AddedTokenFinder(std::move(raw));
  normalised_added_ = AddedTokenFinder(std::move(normalised));
  if (bytes) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      const auto found = id_of_.find(std::string_view(&c, 1));
      const bool plain = byte == '\n' || (byte >= ' ' && byte <= '~');
      if (found == id_of_.end() && plain) {
        fail(ExitCode::data, "{} has no token for the byte 0x{:02X}, so it is no tokenizer of any bytes", spec_.where,
             byte);
      }
      byte_symbols_[byte] = found == id_of_.end() ? spec_.unknown : found->second;
    }
  }
  merges_ = MergeTable(spec_.merges);
  for (const BpeSpec::Split& split : spec_.splits) {
    switch (split.kind) {
      case BpeSpec::Split::Kind::pattern:
        splitters_.push_back(make_splitter(split.pattern, spec_.where));
        break;
      case BpeSpec::Split::Kind::individual_digits:
        splitters_.push_back(make_digits_splitter(true));
        break;
      case BpeSpec::Split::Kind::digits:
        splitters_.push_back(make_digits_splitter(false));
        break;
    }
  }
  find_cuts();
  choose_end_of_document();
  identity_ = hash_bytes(describe());
  spec_.merges = {};
}

void BpeTokenizer::check() const {
  const auto symbols = static_cast<std::int64_t>(spec_.tokens.size() + spec_.extra_symbols.size());
  if (spec_.tokens.empty()) fail(ExitCode::data, "{} has no tokens; is it whole?", spec_.where);
  for (const Merge& merge : spec_.merges) {
    for (const std::int32_t symbol : {merge.left, merge.right, merge.product}) {
      if (symbol < 0 || symbol >= symbols) {
        fail(ExitCode::data, "{}: a merge names token {} of {}", spec_.where, symbol, symbols);
      }
    }
  }
  for (const AddedToken& token : spec_.added) {
    if (token.id < 0 || token.id >= (1 << 30) || token.content.empty()) {
      fail(ExitCode::data, "{}: the added token '{}' has the id {}", spec_.where, token.content, token.id);
    }
  }
}

void BpeTokenizer::find_cuts() {
  can_cut_ = std::ranges::all_of(splitters_, [](const auto& one) { return one->has_safe_cuts(); });
  // An added token that has letters beside a space or a line feed, or takes white space along, may lie across a cut.
  for (const AddedToken& token : spec_.added) {
    const bool blank = token.content.find_first_of(" \n") != std::string::npos;
    const bool glued = token.strip_left || token.strip_right || token.single_word;
    if (blank || (glued && code_classes()[static_cast<unsigned char>(token.content[0]) & 0x7F] & code_class::letter)) {
      can_cut_ = false;
    }
  }
  if (spec_.alphabet != BpeSpec::Alphabet::characters) {
    can_cut_ = can_cut_ && !splitters_.empty() && !spec_.space_in_front;
    return;
  }
  for (const std::string& token : spec_.tokens) {
    for (std::size_t at = token.find(space_mark, 1); at != std::string::npos; at = token.find(space_mark, at + 1)) {
      const std::size_t before = code_point_border(token, at - 1);
      before_space_.insert(decode_utf8(reinterpret_cast<const unsigned char*>(token.data()) + before).value);
    }
  }
}

void BpeTokenizer::choose_end_of_document() {
  if (!spec_.end_of_document.empty()) {
    end_of_document_ = find_special(spec_.end_of_document);
    return;
  }
  for (const std::string_view name : known_ends) {
    end_of_document_ = find_special(name);
    if (end_of_document_) return;
  }
}

std::string BpeTokenizer::describe() const {
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {} {}\n", kind_, spec_.whole_pieces_first, spec_.nfc,
                                 spec_.space_in_front, static_cast<int>(spec_.prefix), spec_.prefix_before_space,
                                 spec_.split_at_spaces, spec_.unknown, spec_.fuse_unknown, spec_.tokens.size());
  for (const std::string& token : spec_.tokens) text += fmt::format("{} {}\n", token.size(), token);
  for (const Merge& merge : spec_.merges) {
    text += fmt::format("{} {} {} {}\n", merge.rank, merge.left, merge.right, merge.product);
  }
  for (const BpeSpec::Split& split : spec_.splits) {
    text += fmt::format("{} {}\n", static_cast<int>(split.kind), split.pattern);
  }
  for (const AddedToken& token : spec_.added) {
    text += fmt::format("{} {} {}{}{}{}{}\n", token.id, token.content, token.special, token.normalized,
                        token.single_word, token.strip_left, token.strip_right);
  }
  return text;
}

std::string_view BpeTokenizer::normalise(std::string_view text, bool first, std::string& storage) const {
  if (spec_.alphabet == BpeSpec::Alphabet::bytes) {
    if (spec_.nfc && !is_plain_nfc(text)) {
      storage = to_nfc(text);
      text = storage;
    }
    return text;
  }
  const bool wanted = spec_.prefix == BpeSpec::Prefix::always || (spec_.prefix == BpeSpec::Prefix::first && first);
  const bool there = text.starts_with(' ') || text.starts_with(space_mark);
  std::string result;
  result.reserve(text.size() + text.size() / 2 + space_mark.size());
  if (wanted && !text.empty() && (spec_.prefix_before_space || !there)) result += space_mark;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    result += word;
    text.remove_prefix(word.size());
    if (text.empty()) break;
    result += space_mark;
    text.remove_prefix(1);
  }
  storage = spec_.nfc && !is_plain_nfc(result) ? to_nfc(result) : std::move(result);
  return storage;
}

std::unique_ptr<Encoder> BpeTokenizer::make_encoder(SpecialTokens special) const {
  return std::make_unique<BpeEncoder>(*this, special);
}

std::optional<std::int32_t> BpeTokenizer::find_special(std::string_view content) const {
  for (const AddedToken& token : spec_.added) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

std::string BpeTokenizer::token_text(std::int32_t id) const {
  if (const auto added = added_text_.find(id); added != added_text_.end()) return added->second;
  if (id < 0 || static_cast<std::size_t>(id) >= spec_.tokens.size()) {
    fail(ExitCode::data, "token {} is beyond the vocabulary of {} tokens of {}", id, vocab_size_, spec_.where);
  }
  if (spec_.alphabet == BpeSpec::Alphabet::bytes) return spec_.tokens[static_cast<std::size_t>(id)];
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (spec_.byte_tokens[byte] == id) return std::string(1, static_cast<char>(byte));
  }
  std::string text = spec_.tokens[static_cast<std::size_t>(id)];
  for (std::size_t at = 0; (at = text.find(space_mark, at)) != std::string::npos; ++at) {
    text.replace(at, space_mark.size(), " ");
  }
  return text;
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += token_text(id);
  // The space that encoding puts before a document.
  if (spec_.prefix != BpeSpec::Prefix::never && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::size_t BpeTokenizer::find_cut(std::string_view text) const {
  if (!can_cut_) return 0;
  if (spec_.alphabet == BpeSpec::Alphabet::bytes) return find_safe_cut(text);
  // Before a space that no token joins with what stands before it. NFC never composes across an ASCII letter.
  for (std::size_t i = text.size(); i-- > 1;) {
    if (text[i] != ' ' || !(code_classes()[static_cast<unsigned char>(text[i - 1]) & 0x7F] & code_class::letter))
      continue;
    if (static_cast<unsigned char>(text[i - 1]) >= 0x80) continue;
    if (!before_space_.contains(static_cast<unsigned char>(text[i - 1]))) return i;
  }
  return 0;
}

}  // namespace ringtrain
