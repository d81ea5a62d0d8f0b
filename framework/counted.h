// Text such as "1 document" and "3 documents".
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace ringtrain {

/// Returns a number and its noun, with a plural that ends in s.
inline std::string counted(std::int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

}  // namespace ringtrain
