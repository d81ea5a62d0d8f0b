#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "data/tokenizer/unicode.h"

namespace ringtrain {

namespace {

using namespace code_class;

unsigned char first_byte(const AddedToken& token) {
  return static_cast<unsigned char>(token.content.front());
}

/// Return the class of the code point at `at`, with '_' as a letter.
std::uint8_t word_class(std::string_view text, std::size_t at) {
  if (text[at] == '_') return letter;
  return code_classes()[decode_utf8(reinterpret_cast<const unsigned char*>(text.data()) + at).value];
}

std::size_t before(std::string_view text, std::size_t at) {
  return code_point_border(text, at - 1);
}

/// Return whether no word goes on across the borders of [begin, end).
bool is_single_word(std::string_view text, std::size_t begin, std::size_t end) {
  constexpr std::uint8_t word = letter | number | mark;
  if (begin > 0 && (word_class(text, before(text, begin)) & word)) return false;
  return end == text.size() || !(word_class(text, end) & word);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), first_(257) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::ranges::stable_sort(tokens_, [](const AddedToken& a, const AddedToken& b) {
    if (first_byte(a) != first_byte(b)) return first_byte(a) < first_byte(b);
    return a.content.size() > b.content.size();
  });
  any_plain_ = std::ranges::any_of(tokens_, [](const AddedToken& token) { return !token.special; });
  for (std::size_t byte = 0; byte < 256; ++byte) {
    first_[byte + 1] = first_[byte];
    while (first_[byte + 1] < tokens_.size() && first_byte(tokens_[first_[byte + 1]]) == byte) ++first_[byte + 1];
    if (first_[byte + 1] > first_[byte]) first_bytes_.push_back(static_cast<unsigned char>(byte));
  }
}

const AddedToken* AddedTokenFinder::match_at(std::string_view text) const {
  const auto byte = static_cast<std::size_t>(static_cast<unsigned char>(text.front()));
  for (std::size_t i = first_[byte]; i < first_[byte + 1]; ++i) {
    if (text.starts_with(tokens_[i].content)) return &tokens_[i];
  }
  return nullptr;
}

void AddedTokenFinder::find(std::string_view text, bool parse_special, std::vector<TextSegment>& segments) const {
  std::size_t done = 0;  // before here all is in segments
  const bool any = parse_special ? !tokens_.empty() : any_plain_;
  for (std::size_t at = 0; any && at < text.size();) {
    if (first_bytes_.size() == 1) {
      const void* found = std::memchr(text.data() + at, first_bytes_.front(), text.size() - at);
      if (!found) break;
      at = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    }
    const AddedToken* token = match_at(text.substr(at));
    if (!token) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->content.size();
    at = end;  // whatever becomes of this match, the next one is looked for after it
    if (token->special && !parse_special) continue;
    if (token->single_word && !is_single_word(text, begin, end)) continue;
    if (token->strip_left) {
      while (begin > done && (word_class(text, before(text, begin)) & space)) begin = before(text, begin);
    }
    if (token->strip_right) {
      while (end < text.size() && (word_class(text, end) & space)) {
        end += decode_utf8(reinterpret_cast<const unsigned char*>(text.data()) + end).bytes;
      }
    }
    begin = std::max(begin, done);
    if (begin > done) segments.push_back({text.substr(done, begin - done), -1});
    segments.push_back({text.substr(begin, std::max(end, begin) - begin), token->id});
    done = std::max(end, begin);
  }
  if (done < text.size()) segments.push_back({text.substr(done), -1});
}

}  // namespace ringtrain
