// Splitters cut a text into the pieces that byte-pair merging never crosses: what tokenizers call pre-tokenisation.
// Each stands for one regular expression, whose matches, left to right, are the pieces; text between matches is a piece
// as well, and a match of no width is a border. The patterns of the known model families have scanners of their own,
// recognised by the pattern's exact text; any other is run by PCRE2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// Used by one thread at a time.
class Splitter {
 public:
  virtual ~Splitter() = default;
  /// Appends the ends of the pieces of well-formed text, as byte offsets into it: ascending, the last one its size;
  /// none for an empty text. Throws Error(data) if the pattern asks for more than a match may take.
  virtual void split(std::string_view text, std::vector<std::size_t>& ends) = 0;
  /// Returns a splitter that does the same, for another thread.
  virtual std::unique_ptr<Splitter> clone() const = 0;
  /// Returns whether a long text may be cut where find_safe_cut() says without a change of its pieces.
  virtual bool has_safe_cuts() const { return false; }
};

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
}  // namespace patterns

/// Returns the scanner of one of the patterns above, null for any other.
std::unique_ptr<Splitter> make_known_splitter(std::string_view pattern);
/// Returns the splitter of any pattern. Throws Error(data) that begins with `where` if PCRE2 cannot compile it, and if
/// it has what PCRE2 reads in another way than the engines that tokenizers were made with.
std::unique_ptr<Splitter> make_splitter(const std::string& pattern, const std::string& where);
/// Returns the splitter that makes every number of \p{N} a piece (individual), or every run of them.
std::unique_ptr<Splitter> make_digits_splitter(bool individual);

/// Returns the last place where a text may be cut without a change for any known pattern or NFC; 0 if there is none.
/// Such a place is before a space between two ASCII letters. It is also after a single line feed that stands between a
/// character that is no white space and a letter. The text need not be well formed.
std::size_t find_safe_cut(std::string_view text);

}  // namespace ringtrain
