// Text out of a file that anybody may have made, for a sentence.
#pragma once

#include <string>
#include <string_view>

namespace ringtrain {

/// Returns text for a message: what is not plain ASCII as '?', at most 120 bytes. (What else a terminal must not be
/// given, framework/standard_streams.h spells out when it prints.)
std::string plain_text(std::string_view text);

}  // namespace ringtrain
