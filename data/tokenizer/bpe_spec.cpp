#include "data/tokenizer/bpe_spec.h"

#include <algorithm>
#include <iterator>

#include "framework/storage/hash.h"

namespace ringtrain {

void check_spec(const BpeSpec& spec, ExitCode damaged) {
  const auto symbols = static_cast<std::int64_t>(spec.tokens.size());
  if (spec.tokens.empty()) fail(damaged, "{} has no tokens; is it complete?", spec.where);
  for (const Merge& merge : spec.merges) {
    for (const std::int32_t symbol : {merge.left, merge.right, merge.product}) {
      if (symbol < 0 || symbol >= symbols) {
        fail(damaged, "{}: a merge names the id {}, but token ids are 0 to {}", spec.where, symbol, symbols - 1);
      }
    }
  }
  for (const AddedToken& token : spec.added) {
    if (token.id < 0 || token.id >= (1 << 30) || token.content.empty()) {
      fail(damaged, "{}: the added token '{}' has the id {}, but must have a text and an id of 0 to {}", spec.where,
           token.content, token.id, (1 << 30) - 1);
    }
  }
}

std::string BpeSpec::Split::regex() const {
  if (kind == Kind::pattern) return pattern;
  return kind == Kind::individual_digits ? R"(\p{N})" : R"(\p{N}+)";
}

std::string identity_of(const BpeSpec& spec) {
  const BpeSpec::Prefix prefix = spec.prepend_mark ? BpeSpec::Prefix::always : spec.prefix;
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {} {}\n", spec.kind(), spec.whole_pieces_first, spec.nfc,
                                 spec.space_in_front, static_cast<int>(prefix), spec.prepend_mark, spec.split_at_spaces,
                                 spec.unknown, spec.fuse_unknown, spec.tokens.size());
  const auto end = std::back_inserter(text);
  for (const std::string& token : spec.tokens) fmt::format_to(end, "{} {}\n", token.size(), token);
  for (const Merge& merge : spec.merges) {
    fmt::format_to(end, "{} {} {} {}\n", merge.rank, merge.left, merge.right, merge.product);
  }
  for (const BpeSpec::Split& split : spec.splits) {
    fmt::format_to(end, "{} {}\n", static_cast<int>(split.kind), split.pattern);
  }
  for (const AddedToken& token : spec.added) {
    fmt::format_to(end, "{} {} {}{}{}{}{}\n", token.id, token.content, token.special, token.normalized,
                   token.single_word, token.strip_left, token.strip_right);
  }
  // Rare options come last, so that all other tokenizers keep the identity that their token files name.
  if (spec.metaspace && (spec.mark_spaces || spec.prepend_mark)) {
    fmt::format_to(end, "marks {} {} {}\n", spec.mark_spaces, spec.prepend_mark, static_cast<int>(spec.prefix));
  }
  const auto is_byte = [](const std::string& token) {
    return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
  };
  if (spec.alphabet == BpeSpec::Alphabet::characters && std::ranges::max(spec.byte_tokens) < 0 &&
      std::ranges::any_of(spec.tokens, is_byte)) {
    text += "no bytes\n";
  }
  for (const std::int32_t id : spec.never_merged) {
    if (std::ranges::none_of(spec.added, [id](const AddedToken& token) { return token.id == id; })) {
      fmt::format_to(end, "not merged {}\n", id);
    }
  }
  return hash_bytes(text);
}

}  // namespace ringtrain
