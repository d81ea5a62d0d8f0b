// tokenizer.json of Hugging Face's tokenizers, version 1.0: byte-level BPE, and SentencePiece's BPE as converters write
// it. A feature of the file that is not implemented is refused by name, never ignored. Truncation and padding are for
// inference and are ignored. The post-processor is read for the tokens that begin and end a text; the caller decides
// whether documents have them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/tokenizer/bpe_spec.h"
#include "framework/error.h"

namespace ringtrain {

/// Throws Error(data) that names the file and the member if the file needs a feature that is not implemented, and
/// Error(damaged) if a member is missing or invalid.
BpeSpec read_tokenizer_json(const nlohmann::json& json, const std::string& path, ExitCode damaged = ExitCode::data);

/// Returns the character that represents a byte in byte-level vocabularies, as UTF-8: GPT-2's bytes_to_unicode.
std::string byte_level_character(unsigned char byte);

}  // namespace ringtrain
