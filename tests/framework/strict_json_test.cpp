// The only reader of JSON: what it refuses, before this costs anything; only whole numbers of 64 bits, so that no cast
// is undefined; structs that name their members once.
#include "framework/storage/strict_json.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <utility>

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

/// Returns why a text is refused, "" if it is not.
std::string refusal(const std::string& text, const JsonBounds& bounds = {}) {
  try {
    parse_strict_json(text, bounds);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(StrictJsonTest, ANameOccursOnceInAnObject) {
  EXPECT_EQ(refusal(R"({"a": 1, "b": {"a": [{"a": 2}, {"a": 3}]}})"), "");
  EXPECT_EQ(refusal(R"({"a": 1, "b": 2, "a": 3})"), "the key a appears twice");
  EXPECT_EQ(refusal(R"([{"c": {"b": [], "b": {}}}])"), "the key b appears twice");
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
  EXPECT_EQ(refusal(std::string("1\0", 2)), "it contains a zero byte");
  EXPECT_EQ(parse_strict_json(R"({"a": [1, {"b": null}]})").dump(), R"({"a":[1,{"b":null}]})");
}

std::int64_t peak_kilobytes() {
  rusage usage{};
#ifndef RINGTRAIN_SANITIZED  // a sanitizer uses memory of its own
  ::getrusage(RUSAGE_SELF, &usage);
#endif
  return usage.ru_maxrss;
}

TEST(StrictJsonTest, IsBoundedBeforeAnythingIsBuilt) {
  const std::string brackets(std::size_t{60} << 20, '[');
  const std::int64_t before = peak_kilobytes();
  EXPECT_EQ(refusal(brackets), "nested deeper than 8 levels");
  EXPECT_EQ(refusal("1" + brackets.substr(0, 100), {.bytes = 100}), "it has 101 bytes, more than the limit of 100");
  std::string empty = "[{}";  // a tree of 21 bytes for each of the text
  for (int i = 0; i < 4 << 20; ++i) empty += ",{}";
  EXPECT_EQ(refusal(empty + "]"), "it holds more values than a text of its length may hold");
  EXPECT_LT(peak_kilobytes() - before, 600 << 10);  // including 12 MiB and its copy for the texts
  EXPECT_EQ(refusal("[[[1]]]", {.depth = 3}), "");
  EXPECT_EQ(refusal("[[[1]]]", {.depth = 2}), "nested deeper than 2 levels");
}

TEST(StrictJsonTest, WhatItSaysOfAHostileTextIsPlain) {
  EXPECT_EQ(refusal("{\"\\u001b[2J\": 1, \"\\u001b[2J\": 2}"), "the key ?[2J appears twice");
  const std::string said = refusal("{\"a\": " + std::string(1000, 'x'));
  EXPECT_TRUE(said.starts_with("parse error at line 1, column 7: ")) << said;
  EXPECT_LT(said.size(), 130U);
}

/// Every kind of member.
struct Part {
  std::string name;
  std::int64_t count = 0;

  template <class Self, class Visit>
  static void visit_members(Self& self, Visit& visit) {
    visit("name", self.name);
    visit("count", self.count);
  }
};
struct Whole {
  Part part;
  std::vector<Part> parts;
  std::vector<std::int64_t> sizes;
  std::string hash, perhaps;

  template <class Self, class Visit>
  static void visit_members(Self& self, Visit& visit) {
    visit("part", self.part);
    visit("parts", self.parts);
    visit("sizes", self.sizes);
    visit.hash("hash", self.hash);
    visit.optional_hash("perhaps", self.perhaps);
  }
};

std::string read_and_written(const std::string& text) {
  const nlohmann::json json = parse_strict_json(text);
  JsonReader reader(json);
  Whole whole;
  Whole::visit_members(whole, reader);
  reader.finish();
  JsonWriter writer;
  Whole::visit_members(std::as_const(whole), writer);
  return writer.json.dump();
}

TEST(StrictJsonTest, AStructIsReadAsItIsWritten) {
  const std::string hash(32, 'a');
  const auto text = [&](const std::string& parts, const std::string& more) {
    return R"({"part":{"name":"a","count":1},"parts":)" + parts + R"(,"sizes":[3,0],"hash":")" + hash + "\"" + more +
           "}";
  };
  for (const std::string& one :
       {text("[]", ""), text(R"([{"name":"b","count":2}])", ",\"perhaps\":\"" + hash + "\"")}) {
    EXPECT_EQ(read_and_written(one), one);
  }
  const auto refused = [&](const std::string& one) -> std::string {
    try {
      read_and_written(one);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused(text("{}", "")), "parts is not a list");
  EXPECT_EQ(refused(text("[1]", "")), "a value that must be an object is not one");
  EXPECT_EQ(refused(text("[{\"name\":\"b\"}]", "")), "count is missing");
  EXPECT_EQ(refused(text("[{\"name\":\"b\",\"count\":-1}]", "")), "count is not a count");
  EXPECT_EQ(refused(text("[]", ",\"other\":1")), "an object has members that are not known");
  EXPECT_EQ(refused(text("[]", ",\"perhaps\":\"A\"")), "perhaps is not a hash");
}

}  // namespace
}  // namespace ringtrain
