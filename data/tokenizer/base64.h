// Base64 (RFC 4648, section 4), as tokenizer files hold the bytes of their tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ringtrain {

/// Return the bytes of a whole base64 text, with or without padding; nothing if it is none.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace ringtrain
