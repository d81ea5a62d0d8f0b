// The byte tokenizer: every byte is a token, and 256 ends a document. It needs no training, it has no unknown text, and
// bits per byte follow directly from the loss.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "data/tokenizer/tokenizer.h"

namespace ringtrain {

inline constexpr std::int64_t byte_vocab_size = 257;
inline constexpr std::int32_t end_of_document = 256;
inline constexpr std::string_view end_of_document_text = "<|endoftext|>";  // in a tokenizer.json

std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace ringtrain
