// The byte tokenizer: a byte is its own token, 256 ends a document. Nothing to train, nothing unknown, and bits per
// byte follow from the loss directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "framework/error.h"

namespace ringtrain {

inline constexpr std::int64_t byte_vocab_size = 257;
inline constexpr std::int32_t end_of_document = 256;

/// tokens[i] = bytes[i]; the sizes agree.
inline void encode_bytes(std::span<const unsigned char> bytes, std::span<std::int32_t> tokens) {
  ensure(bytes.size() == tokens.size(), "a token for every byte");
  for (std::size_t i = 0; i < bytes.size(); ++i) tokens[i] = bytes[i];
}

}  // namespace ringtrain
