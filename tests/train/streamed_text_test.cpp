// Text that is printed while it is generated: whole characters, nothing of a stop string, and finally all text before
// it.
#include "train/generation/streamed_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "framework/random.h"

namespace ringtrain::testing {
namespace {

/// Returns the output pieces for bytes that are added in parts that end at the cuts; the last piece is that of
/// finish().
std::vector<std::string> pieces(StreamedText& stream, const std::string& bytes, const std::vector<std::size_t>& cuts) {
  std::vector<std::string> out;
  std::size_t at = 0;
  for (const std::size_t cut : cuts) {
    if (!stream.stopped()) out.push_back(stream.add(bytes.substr(at, cut - at)));
    at = cut;
  }
  if (!stream.stopped()) out.push_back(stream.add(bytes.substr(at)));
  out.push_back(stream.finish());
  return out;
}

std::vector<std::size_t> every_byte(const std::string& bytes) {
  std::vector<std::size_t> cuts;
  for (std::size_t i = 1; i < bytes.size(); ++i) cuts.push_back(i);
  return cuts;
}

std::string put_together(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

const std::string nasty = "a\u00e9\u20ac\U0001F600\u07ffz\ud7ff\uffff\U00010000\U0010ffff";

TEST(StreamedTextTest, CharactersComeWhole) {
  StreamedText stream;
  const auto parts = pieces(stream, nasty, every_byte(nasty));
  EXPECT_EQ(put_together(parts), nasty);
  EXPECT_EQ(parts.back(), "");
  std::size_t characters = 0;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    ++characters;
    EXPECT_NE(static_cast<unsigned char>(part[0]) & 0xC0, 0x80) << "a piece begins inside a character";
  }
  EXPECT_EQ(characters, 10u);  // each as soon as its last byte has arrived, none before
}

TEST(StreamedTextTest, CutsDoNotMatter) {
  for (std::uint64_t trial = 0; trial < 300; ++trial) {
    std::string bytes;
    std::vector<std::size_t> cuts;
    for (std::uint64_t i = 0; i < 30; ++i) {
      const auto draw = [&](std::uint64_t what, std::uint64_t bound) {
        return random_below(trial, Purpose::test, 100 * what + i, bound);
      };
      const unsigned char alphabet[] = {'a',  'b',  0x80, 0xBF, 0xC3, 0xA9, 0xE2,
                                        0x82, 0xAC, 0xF0, 0x9F, 0x98, 0xED, 0xFF};
      bytes += static_cast<char>(alphabet[draw(0, sizeof alphabet)]);
      if (draw(1, 2) == 0 && i < 29) cuts.push_back(bytes.size());
    }
    for (const std::vector<std::string>& stops : {std::vector<std::string>{}, {"ab", "ba\xC3\xA9"}}) {
      StreamedText whole(stops), cut(stops);
      EXPECT_EQ(put_together(pieces(cut, bytes, cuts)), put_together(pieces(whole, bytes, {}))) << trial;
    }
  }
}

TEST(StreamedTextTest, WhatIsNoUtf8IsReplacedByMaximalParts) {
  // Examples of the Unicode Standard, section 3.9, tables 3-8 to 3-11.
  const std::string r = "\uFFFD";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", r + r + r + r + r + r + r + r + "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", r + r + r + r + r + r + r + r + "A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", r + r + r + r + r + "A" + r + r + "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", r + r + r + r + "A"},
      {"a\xE2\x82", "a" + r},  // an end inside a character
      {"a\xF0\x9F\x98", "a" + r}};
  for (const auto& [bytes, text] : cases) {
    StreamedText whole, cut;
    EXPECT_EQ(put_together(pieces(whole, bytes, {})), text);
    EXPECT_EQ(put_together(pieces(cut, bytes, every_byte(bytes))), text);
  }
}

TEST(StreamedTextTest, RawBytesComeAtOnce) {
  StreamedText stream({}, /*raw=*/true);
  EXPECT_EQ(stream.add("\xE2"), "\xE2");
  EXPECT_EQ(stream.add("\xFF"), "\xFF");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamedTextTest, AStopStringEndsTheTextBeforeItForAnyEndsOfTokens) {
  const std::string text = "one two\nENDless";
  for (std::size_t first = 1; first < text.size(); ++first) {
    for (std::size_t second = first; second < text.size(); ++second) {
      StreamedText stream({"\nEND", "no such"});
      EXPECT_EQ(put_together(pieces(stream, text, {first, second})), "one two");
      EXPECT_TRUE(stream.stopped());
    }
  }
}

TEST(StreamedTextTest, WhatOnlyBeganLikeAStopStringComesAfterAll) {
  StreamedText stream({"aab", "ac"});
  EXPECT_EQ(stream.add("xa"), "x");
  EXPECT_EQ(stream.add("a"), "");   // "aa" may become "aab"
  EXPECT_EQ(stream.add("a"), "a");  // "aaa": the last two may
  EXPECT_EQ(stream.add("x"), "aax");
  EXPECT_EQ(stream.add("a"), "");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.finish(), "a");
}

TEST(StreamedTextTest, TheFirstOfSeveralStopStringsCounts) {
  StreamedText stream({"world", "lo"});
  EXPECT_EQ(stream.add("hello world"), "hel");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace ringtrain::testing
