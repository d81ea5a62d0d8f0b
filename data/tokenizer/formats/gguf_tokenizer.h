// The tokenizer inside a GGUF file: tokens with types, and merges (byte-level BPE) or scores (SentencePiece's BPE). How
// a byte-level one splits text stands there as a name alone; names that are not known here are refused.
#pragma once

#include <nlohmann/json.hpp>

#include "data/tokenizer/bpe_spec.h"
#include "framework/gguf/gguf.h"

namespace ringtrain {

/// Throws Error(data) that names the file and the key at fault: there is no tokenizer, or one that is not done here.
BpeSpec read_gguf_tokenizer(const GgufFile& file);

/// Returns the same as a tokenizer.json of version 1.0: what is read from it has the identity of what is read here.
/// Throws as read_gguf_tokenizer(), and as json_of_pieces() for pieces that no such file can hold.
nlohmann::json gguf_tokenizer_json(const GgufFile& file);

}  // namespace ringtrain
