// Text from an untrusted file, for a message.
#pragma once

#include <string>
#include <string_view>

namespace ringtrain {

/// Returns text for a message: at most 120 bytes, with '?' for everything except plain ASCII.
/// (framework/standard_streams.h spells out the remaining unsafe characters when it prints.)
std::string plain_text(std::string_view text);

}  // namespace ringtrain
