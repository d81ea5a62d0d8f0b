// Messages that cannot be written end nothing; results that cannot be written are an error; no file of ours becomes a
// standard stream.
#include "framework/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "framework/error.h"
#include "framework/profile/progress.h"
#include "tests/support/error_of.h"

namespace ringtrain {
namespace {

/// Returns an unbuffered stream, like stderr, on which every write fails.
std::FILE* full_disk() {
  std::FILE* file = std::fopen("/dev/full", "w");
  if (file) std::setvbuf(file, nullptr, _IONBF, 0);
  return file;
}

TEST(StandardStreams, MessagesAndProgressThatCannotBeWrittenAreDropped) {
  std::FILE* const file = full_disk();
  ASSERT_NE(file, nullptr);
  for (int i = 0; i < 2; ++i) {
    write_message(file, "a message\n");
    EXPECT_EQ(std::ferror(file), 0);
  }
  {
    Progress progress("train", 2, file);
    EXPECT_NO_THROW(progress.update(1, "loss=1", 10));
    EXPECT_NO_THROW(progress.log("saved"));
    EXPECT_NO_THROW(progress.update(2, "loss=2", 20));
  }
  std::fclose(file);
}

TEST(StandardStreams, WhatATerminalWouldObeyIsSpelledOut) {
  const std::string plain = "Grüße, 日本語, 𝔸🎉, עברית and |#~\ttab\nline\n";
  EXPECT_EQ(visible(plain), plain);
  EXPECT_EQ(visible("a\x1b[2J\x1b]0;title\x07"), "a\\x1b[2J\\x1b]0;title\\x07");
  EXPECT_EQ(visible("over\rwritten\b\x7f"), "over\\x0dwritten\\x08\\x7f");
  EXPECT_EQ(visible(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(visible("\u009b2J"), "\\u{9b}2J");  // a C1 control, well encoded
  EXPECT_EQ(visible("\x9b"
                    "2J"),
            "\\x9b2J");                                           // and as one byte
  EXPECT_EQ(visible("file\u202egnp.sh"), "file\\u{202e}gnp.sh");  // written from right to left
  EXPECT_EQ(visible("\xc0\x9b \xe0\x80\x9b \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82"),
            "\\xc0\\x9b \\xe0\\x80\\x9b \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xe2\\x82");
}

TEST(StandardStreams, MessagesAndProgressAreVisible) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  write_message(file, "no such file: \x1b[2J\n");
  {
    Progress progress("train", 2, file);
    progress.update(1, "\x1b[2J", 10);
    progress.log("saved \x1b[2J");
  }
  std::rewind(file);
  std::string text(1000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_NE(text.find("no such file: \\x1b[2J\n"), std::string::npos) << text;
}

class StandardStreamsDeathTest : public ::testing::Test {
 protected:
  StandardStreamsDeathTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(StandardStreamsDeathTest, OutputThatCannotBeWrittenIsAnError) {
  const auto end_with_code_of_flush = [](const char* path, bool flushed_before = false) {
    ::dup2(::open(path, O_WRONLY), STDOUT_FILENO);
    std::fputs("a result\n", stdout);
    if (flushed_before) std::fflush(stdout);  // a later check must still see the error
    try {
      flush_results();
      std::_Exit(0);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(static_cast<int>(error.code()));
    }
  };
  EXPECT_EXIT(end_with_code_of_flush("/dev/full"), ::testing::ExitedWithCode(2),
              "cannot write the output to stdout: No space left on device");
  EXPECT_EXIT(end_with_code_of_flush("/dev/full", /*flushed_before=*/true), ::testing::ExitedWithCode(2),
              "cannot write the output to stdout");
  EXPECT_EXIT(end_with_code_of_flush("/dev/null"), ::testing::ExitedWithCode(0), "");
}

TEST_F(StandardStreamsDeathTest, AClosedStreamIsOpenedAndEveryUseOfItFails) {
  EXPECT_EXIT(
      {
        for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(stream);
        claim_standard_streams();
        const int next = ::open("/dev/null", O_RDWR);
        char byte = 0;
        const bool fails = ::read(STDIN_FILENO, &byte, 1) < 0 && ::write(STDOUT_FILENO, "x", 1) < 0 &&
                           ::write(STDERR_FILENO, "x", 1) < 0;
        std::_Exit(next > STDERR_FILENO && fails ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ringtrain
