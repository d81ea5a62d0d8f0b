// Numbers of tokens as people write them, in configs and on command lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ringtrain {

/// Returns a number of tokens: digits, or digits followed by K or M of either case, for 1024 and 1024^2, as in names of
/// context lengths: 16K is 16384. Returns nothing for any other text, or if the number does not fit.
std::optional<std::int64_t> token_count(std::string_view text);

}  // namespace ringtrain
