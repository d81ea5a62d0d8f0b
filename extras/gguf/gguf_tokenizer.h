// The tokenizer inside a GGUF file: tokens with types, and merges (byte-level BPE) or scores (SentencePiece's BPE). How
// a byte-level one splits text stands there as a name alone; names that are not known here are refused.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "extras/gguf/gguf_file.h"

namespace ringtrain {

/// Returns the tokenizer as a tokenizer.json of version 1.0. Throws Error(data) that names the file and the key at
/// fault: there is no tokenizer, or one that is not read; and as json_of_pieces() for pieces that no such file can
/// hold.
nlohmann::json gguf_tokenizer_json(const GgufFile& file);

/// Returns the tokenizer.json of a file and its chat_template.jinja, their texts by name; none of a file without a
/// tokenizer. Throws as gguf_tokenizer_json() does.
std::map<std::string, std::string> gguf_tokenizer_files(const GgufFile& file);

}  // namespace ringtrain
