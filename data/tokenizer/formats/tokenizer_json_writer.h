// Writes a tokenizer.json of Hugging Face's tokenizers, version 1.0.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace ringtrain {

/// Returns the byte tokenizer as a file: one token per byte, no merges, and `<|endoftext|>` as 256. load_tokenizer()
/// turns it back into the byte tokenizer.
nlohmann::json byte_tokenizer_json();

}  // namespace ringtrain
