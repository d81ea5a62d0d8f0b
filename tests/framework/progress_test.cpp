// Human-readable sizes, and progress lines on a terminal and in a pipe.
#include "framework/profile/progress.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace ringtrain {
namespace {

// One byte less than 1 MiB is never "1024 KiB".
TEST(Human, Bytes) {
  const std::vector<std::pair<double, const char*>> cases{{0, "0 B"},
                                                          {1023, "1023 B"},
                                                          {1024, "1.0 KiB"},
                                                          {1536, "1.5 KiB"},
                                                          {100 * 1024, "100 KiB"},
                                                          {1024 * 1024 - 1, "1.0 MiB"},
                                                          {3.25 * 1024 * 1024 * 1024, "3.2 GiB"},
                                                          {9e18, "7.8 EiB"}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(human_bytes(bytes), text);
}

TEST(Human, Counts) {
  const std::vector<std::pair<double, const char*>> cases{{0, "0"},        {2.5, "2.5"},     {950, "950"},
                                                          {999.9, "1.0K"}, {12345, "12.3K"}, {123456, "123K"},
                                                          {1.2e6, "1.2M"}, {5e15, "5000T"}};
  for (const auto& [count, text] : cases) EXPECT_EQ(human_count(count), text);
}

TEST(Human, Durations) {
  const std::vector<std::pair<double, const char*>> cases{
      {0, "0.0s"},       {0.44, "0.4s"},  {9.96, "10s"},
      {59.4, "59s"},     {59.6, "1m00s"}, {185, "3m05s"},
      {3599.7, "1h00m"}, {7380, "2h03m"}, {4 * 86400 + 2 * 3600, "4d02h"},
      {-1, "0.0s"}};
  for (const auto& [seconds, text] : cases) EXPECT_EQ(human_duration(seconds), text);
  EXPECT_EQ(human_duration(1e300), human_duration(1e12));
}

TEST(ProgressLine, SaysWhatIsKnown) {
  ProgressState state{.task = "train", .done = 119, .total = 600, .fields = "loss=2.31"};
  EXPECT_EQ(progress_line(state), "train 119/600 (19%) loss=2.31");
  state.units_per_second = 12345;
  state.seconds_left = 185;
  EXPECT_EQ(progress_line(state), "train 119/600 (19%) loss=2.31 12.3K tokens/s 3m05s left");
  state.fields = "";
  state.unit = "bytes";
  EXPECT_EQ(progress_line(state), "train 119/600 (19%) 12.3K bytes/s 3m05s left");
  state.done = 599;
  EXPECT_TRUE(progress_line(state).starts_with("train 599/600 (99%)"));  // 100 % means done, not nearly done
  state.done = 600;
  EXPECT_TRUE(progress_line(state).starts_with("train 600/600 (100%)"));
  EXPECT_EQ(progress_line({.task = "x", .fields = {}}), "x 0/0 (100%)");
}

TEST(ProgressLine, HasNoRateOfTheFirstMicroseconds) {
  EXPECT_EQ(rate_over(2590, 1.2e-6), 0);
  EXPECT_EQ(rate_over(0, 0), 0);
  EXPECT_DOUBLE_EQ(rate_over(500, 0.25), 2000);
}

TEST(Progress, InAPipeItWritesTheFirstAndTheLastLineAndNotes) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    Progress progress("train", 1000, file);
    for (int step = 1; step <= 1000; ++step) {
      progress.update(step, "loss=" + std::to_string(step), step * 10);
      if (step == 500) progress.log("saved");
    }
  }
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  std::istringstream lines(text);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  ASSERT_EQ(all.size(), 3u) << text;  // everything takes far less than the five seconds between lines
  EXPECT_TRUE(all[0].starts_with("train 1/1000 (0%) loss=1")) << all[0];
  EXPECT_EQ(all[1], "saved");
  EXPECT_TRUE(all[2].starts_with("train 1000/1000 (100%) loss=1000")) << all[2];
  EXPECT_EQ(all[2].find("left"), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Progress, ALineStaysAtEachTwentiethAndEveryTenMinutes) {
  EXPECT_FALSE(stays(4, 0.5));
  EXPECT_TRUE(stays(5, 0.05));
  EXPECT_FALSE(stays(599, 0.04));
  EXPECT_TRUE(stays(600, 0));
}

TEST(Progress, OnATerminalItRewritesOneLineThatFitsTheWidth) {
  int master = -1, slave = -1;
  winsize size{};
  size.ws_row = 24;
  size.ws_col = 30;
  ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, &size), 0);
  std::FILE* file = fdopen(slave, "w");
  ASSERT_NE(file, nullptr);
  {
    Progress progress("train", 10, file);
    progress.update(1, "a very longü field that does not fit", 10);
    progress.log("saved");
    progress.above([&] { std::fputs("of a callback\n", file); });
    progress.update(10, "ok", 100);
    progress.finish();
    progress.log("done");  // below the finished line
  }
  std::fclose(file);
  std::string text;
  char piece[256];
  // A terminal delivers what was written in pieces, and an error after the last.
  for (ssize_t n; (n = read(master, piece, sizeof piece)) > 0;) text.append(piece, static_cast<std::size_t>(n));
  close(master);
  // The terminal adds \r before \n.
  const std::string line = "\rtrain 1/10 (10%) a very long\x1b[K", gone = "\r\x1b[K";
  ASSERT_TRUE(text.starts_with(line + gone + "saved\r\n" + line + gone + "of a callback\r\n" + line + "\rtrain 10/10"))
      << text;
  EXPECT_TRUE(text.ends_with("\x1b[K\r\ndone\r\n")) << text;
}

}  // namespace
}  // namespace ringtrain
