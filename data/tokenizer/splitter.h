// A splitter cuts a text into the pieces that byte-pair merging never crosses, which tokenizers call pre-tokenization.
// It has one regular expression, whose matches, left to right, are the pieces; text between matches is a piece as well,
// and an empty match is a border. PCRE2 runs it with its JIT.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// Used by one thread at a time; another thread uses a copy, which shares the compiled pattern.
class Splitter {
 public:
  /// Throws Error(data) that begins with `where` if PCRE2 cannot compile the pattern, or interprets it differently from
  /// the engines of tokenizers.
  Splitter(const std::string& pattern, const std::string& where);
  Splitter(const Splitter& other);
  ~Splitter();
  /// Appends the ends of the pieces of well-formed text, as byte offsets into it: ascending, the last one its size;
  /// none for an empty text. Throws Error(data) if a match exceeds its limit.
  void split(std::string_view text, std::vector<std::size_t>& ends);

 private:
  struct Free;
  struct Pattern;
  struct Scratch;
  std::shared_ptr<const Pattern> pattern_;
  std::unique_ptr<Scratch> scratch_;
};

/// The patterns of the known model families. A long text may be cut for them (find_safe_cut()), and none of them leaves
/// out any part of a text.
namespace patterns {
// clang-format off
inline constexpr std::string_view gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view qwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view tekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view o200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// clang-format on
inline constexpr std::string_view known[] = {gpt2, llama3, qwen2, qwen35, tekken, o200k};
}  // namespace patterns

/// Returns whether a pattern is exactly one of patterns::known.
bool is_known_pattern(std::string_view pattern);

/// Returns the last position at which a text may be cut without a change for any known pattern, digits, or NFC; 0 if
/// there is none. Such a position is before a space between two ASCII letters, or after a single line feed between a
/// character that is not white space and a letter. The text need not be well formed.
std::size_t find_safe_cut(std::string_view text);

}  // namespace ringtrain
