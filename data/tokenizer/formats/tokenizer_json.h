// tokenizer.json of Hugging Face's tokenizers, version 1.0: byte-level BPE, and SentencePiece's BPE as converters write
// it. What the file asks for and this program does not do is refused by name, never ignored. Truncation and padding are
// for inference and are ignored. Of the post-processor it reads which token begins and ends a text; whether a document
// has these is the caller's choice.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/tokenizer/bpe_spec.h"
#include "framework/error.h"

namespace ringtrain {

/// Throws Error(data) that names the file and the member at fault where the file asks for what is not done here, and
/// Error(damaged) where a member is missing or is not what it has to be.
BpeSpec read_tokenizer_json(const nlohmann::json& json, const std::string& path, ExitCode damaged = ExitCode::data);

/// Returns the character that stands for a byte in byte-level vocabularies, as UTF-8: GPT-2's bytes_to_unicode.
std::string byte_level_character(unsigned char byte);

}  // namespace ringtrain
