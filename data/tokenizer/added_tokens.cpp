#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "data/tokenizer/unicode.h"

namespace ringtrain {

namespace {

unsigned char first_byte(const AddedToken& token) {
  return static_cast<unsigned char>(token.content.front());
}

char32_t code_at(std::string_view text, std::size_t at) {
  return decode_utf8(text, at).value;
}

bool is_space(std::string_view text, std::size_t at) {
  return is_white_space(code_at(text, at));
}

std::size_t before(std::string_view text, std::size_t at) {
  return code_point_border(text, at - 1);
}

/// Returns whether no word continues across an end of [begin, end).
bool is_single_word(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word(code_at(text, before(text, begin)))) return false;
  return end == text.size() || !is_word(code_at(text, end));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), first_(257) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::ranges::stable_sort(tokens_, [](const AddedToken& a, const AddedToken& b) {
    if (first_byte(a) != first_byte(b)) return first_byte(a) < first_byte(b);
    if (a.content.size() != b.content.size()) return a.content.size() > b.content.size();
    return a.special && !b.special;
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
  std::size_t done = 0;  // everything before is in segments
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
    at = end;  // whether this match counts or not, the next one is searched after it
    if (token->special && !parse_special) continue;
    if (token->single_word && !is_single_word(text, begin, end)) continue;
    if (token->strip_left) {
      while (begin > done && is_space(text, before(text, begin))) begin = before(text, begin);
      begin = std::max(begin, done);
    }
    while (token->strip_right && end < text.size() && is_space(text, end)) {
      end += decode_utf8(text, end).bytes;
    }
    if (begin > done) segments.push_back({text.substr(done, begin - done), -1});
    if (end > begin) segments.push_back({text.substr(begin, end - begin), token->id});
    done = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done), -1});
}

}  // namespace ringtrain
