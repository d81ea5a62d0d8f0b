#include "data/tokenizer/bpe_tokenizer.h"

#include <algorithm>

#include "data/tokenizer/bpe_encoder.h"
#include "data/tokenizer/unicode.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

/// The tokens with which the known families end a document.
constexpr std::string_view end_of_sentence =  // two literals: \x9Ce would be one number
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>";
constexpr std::string_view known_ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", end_of_sentence};

/// Finds each byte's token. Throws Error(data) if a character of plain text has none.
void find_byte_symbols(BpeModel& model) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto found = model.id_of.find(std::string_view(&c, 1));
    const bool plain = byte == '\n' || (byte >= ' ' && byte <= '~');
    if (found == model.id_of.end() && plain) {
      fail(ExitCode::data, "{} has no token for the byte 0x{:02X}, so it cannot encode every text", model.spec.where,
           byte);
    }
    model.byte_symbols[byte] = found == model.id_of.end() ? -1 : found->second;
  }
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeSpec spec) {
  model_.spec = std::move(spec);
  const bool bytes = model_.spec.alphabet == BpeSpec::Alphabet::bytes;
  check_spec(model_.spec);
  std::vector<bool> merged(model_.spec.tokens.size(), true);
  for (const std::int32_t id : model_.spec.never_merged) merged[id] = false;
  for (std::size_t i = 0; i < model_.spec.tokens.size(); ++i) {
    if (model_.spec.tokens[i].empty() || !merged[i]) continue;
    model_.id_of.try_emplace(model_.spec.tokens[i], static_cast<std::int32_t>(i));
  }
  vocab_size_ = static_cast<std::int64_t>(model_.spec.tokens.size());
  std::vector<AddedToken> raw, normalized;
  for (const AddedToken& token : model_.spec.added) {
    vocab_size_ = std::max<std::int64_t>(vocab_size_, token.id + std::int64_t{1});
    added_text_[token.id] = token.content;
    if (token.special) special_.insert(token.id);
    (token.normalized ? normalized : raw).push_back(token);
    if (token.normalized) {
      std::string storage;
      normalized.back().content = model_.normalize(token.content, Preceding::nothing, storage);
    }
  }
  model_.raw_added = AddedTokenFinder(std::move(raw));
  model_.normalized_added = AddedTokenFinder(normalized);
  if (bytes) find_byte_symbols(model_);
  model_.merges = MergeTable(model_.spec.merges);
  for (const BpeSpec::Split& split : model_.spec.splits) {
    model_.splitters.emplace_back(split.regex(), model_.spec.where);
  }
  find_cuts(normalized);
  for (const std::string_view name : known_ends) {
    if (!end_of_document_) name_end_of_document(name);
  }
  identity_ = identity_of(model_.spec);
  model_.spec.merges = {};
}

void BpeTokenizer::find_cuts(const std::vector<AddedToken>& normalized) {
  can_cut_ = std::ranges::all_of(model_.spec.splits, [](const BpeSpec::Split& split) {
    return split.kind != BpeSpec::Split::Kind::pattern || is_known_pattern(split.pattern);
  });
  const bool bytes = model_.spec.alphabet == BpeSpec::Alphabet::bytes;
  // An added token with a space or a line feed may span a cut. So may white space that a token includes and that is
  // next to a letter.
  const auto letter_at = [](std::string_view text, std::size_t at) { return is_letter(decode_utf8(text, at).value); };
  for (const AddedToken& token : model_.spec.added) {
    const std::string& content = token.content;
    if (content.find_first_of(bytes ? " \n" : " ") != std::string::npos ||
        (token.strip_left && letter_at(content, 0)) ||
        (token.strip_right && letter_at(content, code_point_border(content, content.size() - 1)))) {
      can_cut_ = false;
    }
  }
  if (bytes) {
    can_cut_ = can_cut_ && !model_.splitters.empty() && !model_.spec.space_in_front;
    return;
  }
  const auto note_marks = [&](const std::string& text) {
    for (std::size_t at = text.find(space_mark, 1); at != std::string::npos; at = text.find(space_mark, at + 1)) {
      const std::size_t before = code_point_border(text, at - 1);
      model_.before_space.insert(decode_utf8(text, before).value);
    }
  };
  for (const std::string& token : model_.spec.tokens) note_marks(token);
  for (const AddedToken& token : normalized) note_marks(token.content);
  // Do not cut where the text itself does not determine what merges: unknown characters become one token across a mark
  // that is itself unknown, and the token of an unknown character or a byte may merge with one.
  const auto mark = model_.id_of.find(space_mark);
  std::unordered_set<std::int32_t> others(model_.spec.byte_tokens.begin(), model_.spec.byte_tokens.end());
  others.insert(model_.spec.unknown);
  model_.parts_at_marks =
      mark != model_.id_of.end() && std::ranges::none_of(model_.spec.merges, [&](const Merge& merge) {
        return others.contains(merge.left) || others.contains(merge.right);
      });
  can_cut_ = can_cut_ && (model_.parts_at_marks || model_.spec.split_at_spaces);
}

std::unique_ptr<Encoder> BpeTokenizer::make_encoder(SpecialTokens special) const {
  return std::make_unique<BpeEncoder>(model_, special);
}

std::optional<std::int32_t> BpeTokenizer::find_special(std::string_view content) const {
  for (const AddedToken& token : model_.spec.added) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

std::string BpeTokenizer::token_text(std::int32_t id) const {
  if (const auto added = added_text_.find(id); added != added_text_.end()) return added->second;
  if (id < 0 || static_cast<std::size_t>(id) >= model_.spec.tokens.size()) {
    fail(ExitCode::data, "token {} is unused, or not one of the {} ids of {}", id, vocab_size_, model_.spec.where);
  }
  if (model_.spec.alphabet == BpeSpec::Alphabet::bytes) return model_.spec.tokens[id];
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (model_.spec.byte_tokens[byte] == id) return std::string(1, static_cast<char>(byte));
  }
  std::string text = model_.spec.tokens[id];
  for (std::size_t at = 0; (at = text.find(space_mark, at)) != std::string::npos; ++at) {
    text.replace(at, space_mark.size(), " ");
  }
  return text;
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += token_text(id);
  if (model_.spec.has_prefix() && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::size_t BpeTokenizer::find_cut(std::string_view text) const {
  if (!can_cut_) return 0;
  if (model_.spec.alphabet == BpeSpec::Alphabet::bytes) return find_safe_cut(text);
  // Cut before a space that no token joins with the character before it. NFC never composes across an ASCII letter.
  for (std::size_t i = text.size(); i-- > 1;) {
    const auto before = static_cast<unsigned char>(text[i - 1]);
    if (text[i] == ' ' && before < 0x80 && is_letter(before) && !model_.before_space.contains(before)) return i;
  }
  return 0;
}

}  // namespace ringtrain
