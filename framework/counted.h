// Text such as "1 document" and "3 documents".
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace ringtrain {

/// Returns a number and its noun, with a plural that ends in s. number: as it is printed, such as "1,234".
inline std::string counted(std::string_view number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == "1" ? "" : "s");
}
inline std::string counted(std::int64_t n, std::string_view noun) {
  return counted(std::to_string(n), noun);
}

}  // namespace ringtrain
