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

/// Return why a text is refused, "" if it is not.
std::string refusal(const std::string& text) {
  try {
    parse_strict_json(text);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(StrictJsonTest, ANameStandsOnceInAnObject) {
  EXPECT_EQ(refusal(R"({"a": 1, "b": {"a": [{"a": 2}, {"a": 3}]}})"), "");
  EXPECT_EQ(refusal(R"({"a": 1, "b": 2, "a": 3})"), "a stands there twice");
  EXPECT_EQ(refusal(R"([{"c": {"b": [], "b": {}}}])"), "b stands there twice");
}

TEST(StrictJsonTest, NothingIsNestedDeeply) {
  const auto nested = [](std::size_t levels, const std::string& inner) {
    return std::string(levels, '[') + inner + std::string(levels, ']');
  };
  EXPECT_EQ(refusal(nested(9, "")), "");
  EXPECT_EQ(refusal(nested(8, "1, \"a\", null, true, 0.5, -1")), "");
  for (const char* inner : {"[]", "{}", "1", "-1", "0.5", "true", "null", "\"a\""}) {
    EXPECT_EQ(refusal(nested(9, inner)), "nested deeper than 8 levels") << inner;
  }
  EXPECT_EQ(refusal(nested(8, R"({"a": 1})")), "nested deeper than 8 levels");
  EXPECT_EQ(refusal(nested(1'000'000, "")), "nested deeper than 8 levels");
}

TEST(StrictJsonTest, WhatIsNoJsonIsRefused) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "1 2", "\"\xFF\"", "1e999"})
    EXPECT_NE(refusal(text), "") << text;
  EXPECT_EQ(refusal(std::string("1\0", 2)), "it holds a byte of 0");
  EXPECT_EQ(parse_strict_json(R"({"a": [1, {"b": null}]})").dump(), R"({"a":[1,{"b":null}]})");
}

}  // namespace
}  // namespace ringtrain
