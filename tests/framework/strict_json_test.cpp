// Whole numbers in JSON: those of 64 bits and no others, so that no cast is undefined.
#include "framework/storage/strict_json.h"

#include <gtest/gtest.h>

namespace ringtrain {
namespace {

std::optional<std::int64_t> read(const char* text) {
  return whole_number(nlohmann::json::parse(text));
}

TEST(StrictJsonTest, WholeNumbersOf64BitsAreRead) {
  EXPECT_EQ(read("0"), 0);
  EXPECT_EQ(read("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(read("9223372036854775807"), INT64_MAX);
}

TEST(StrictJsonTest, NothingElseIsAWholeNumber) {
  for (const char* text : {"9223372036854775808", "18446744073709551615", "1e64", "-1e64", "1.0", "1e2", "true", "null",
                           "\"1\"", "[1]", "{}"}) {
    EXPECT_EQ(read(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace ringtrain
