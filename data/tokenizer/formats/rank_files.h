// Tokenizer files that list tokens by rank and leave the merges to be found: tiktoken's form (a line a token: its bytes
// in base64, and its rank) and Mistral's tekken.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "data/tokenizer/bpe_spec.h"

namespace ringtrain {

/// Returns the merges that ranks imply: every cut of a token into two tokens, at the token's own rank. symbols: the
/// byte strings by id; the first `ranked` of them from `first` on are in the order of their ranks.
std::vector<Merge> merges_of_ranks(const std::vector<std::string>& symbols, std::size_t first);

/// Returns whether text looks like tiktoken's form.
bool is_tiktoken(std::string_view text);
/// Reads tiktoken's form. pattern: how it splits; "": that of a known file, recognised by its hash. Throws Error(data)
/// that names file and line.
BpeSpec read_tiktoken(std::string_view text, const std::string& path, const std::string& pattern);
/// Reads tekken.json. Throws Error(data) that names what is missing.
BpeSpec read_tekken(const nlohmann::json& json, const std::string& path);

}  // namespace ringtrain
