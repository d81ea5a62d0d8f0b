// Key tokens: tokens whose loss falls when the model may read a long context instead of a short one, and which it then
// predicts well. Names, defaults, and rules are those of the package longppl 0.3.0 (Fang et al., "What is Wrong with
// Perplexity for Long-context Language Modeling?", arXiv 2410.23771). A set of them can be saved, so that several
// models are scored on the same one. Pure, except for reading a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace ringtrain {

struct KeyTokenOptions {
  std::int64_t trunc_len = 4096;       // tokens before the scored ones of a short window; the first ones are never key
  std::int64_t sliding_window = 1024;  // tokens that a short window scores
  double alpha = 2;                    // a key token's nll falls by more than this
  double beta = -2;                    // a key token's log probability in the long context exceeds this
  friend bool operator==(const KeyTokenOptions&, const KeyTokenOptions&) = default;
};

/// Returns whether a token is a key token, given its nll in the short and in the long context. Both bounds are strict.
bool is_key(double short_nll, double long_nll, const KeyTokenOptions& options);

/// A short window of a text: the `length` tokens from `begin`, the last `scored` of which are scored.
struct ShortWindow {
  std::int64_t begin = 0, length = 0, scored = 0;
  friend bool operator==(const ShortWindow&, const ShortWindow&) = default;
};
/// Returns the short windows of a text of this many tokens: together they score each token from trunc_len onward once.
std::vector<ShortWindow> short_windows(std::int64_t tokens, const KeyTokenOptions& options);

/// A part of a text: [begin, end), in characters, or in tokens if the text is not known.
struct TextInterval {
  std::int64_t begin = 0, end = 0;
  friend bool operator==(const TextInterval&, const TextInterval&) = default;
};
/// Returns the intervals in order, joining those that follow each other without a gap.
std::vector<TextInterval> merged(std::span<const TextInterval> intervals);
/// Returns the indices of the tokens whose interval is within one of the merged key intervals.
std::vector<std::int64_t> tokens_within(std::span<const TextInterval> tokens, std::span<const TextInterval> key);
/// Returns the characters (code points) of each token's text, in a text that begins with the first token. A token that
/// contains a part of a character has all of it; a special token has none.
std::vector<TextInterval> character_intervals(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

/// The key parts of some texts, and the model that determined them.
struct KeySet {
  struct Text {
    std::string hash;               // of the whole text
    std::int64_t length = 0;        // of the part that the evaluator has read
    std::vector<TextInterval> key;  // merged, ascending
    friend bool operator==(const Text&, const Text&) = default;
  };
  std::string evaluator;            // path of the model
  std::string unit = "characters";  // or "tokens": then a text's hash is that of its tokens
  KeyTokenOptions options;
  std::vector<Text> texts;
};

/// The first bytes of a saved set.
inline constexpr std::string_view key_set_head = "{\"written_by\":\"ringtrain evaluate --save-path\",";
/// Returns the text of a set's file.
std::string key_set_text(const KeySet& set);
/// Throws Error(data) that names the file and what is wrong with it.
KeySet read_key_set(const std::string& path);

}  // namespace ringtrain
