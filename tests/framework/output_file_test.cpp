// framework/storage/output_file.h: a file takes its name when it is whole, replaces its like and nothing else, and has
// one writer.
#include "framework/storage/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"

namespace ringtrain::testing {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public FolderTest {
 protected:
  /// Return rules by which a file that begins with "ours" is a former output.
  static OutputRules rules(bool overwrite = false, std::vector<std::string> inputs = {}) {
    return {.kind = "our kind",
            .is_former = [](const std::string& path) { return read_file(path, ExitCode::data).starts_with("ours"); },
            .overwrite = overwrite,
            .inputs = [inputs] { return inputs; },
            .remedy = "choose another"};
  }
  static void make(const std::string& path, const OutputRules& how, const std::string& content = "ours, new") {
    OutputFile output(path, how, ExitCode::usage);
    output.file().write(content);
    output.publish();
  }
  /// Expects both the check beforehand and the making to be refused with this part.
  static void expect_refused(const std::string& path, const OutputRules& how, const std::string& part) {
    for (const auto& message : {error_of(ExitCode::usage, [&] { check_output(path, how, ExitCode::usage); }),
                                error_of(ExitCode::usage, [&] { make(path, how); })}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
  void write(const std::string& name, const std::string& content) const {
    write_file(at(name), content, ExitCode::data);
  }
  std::string content(const std::string& name) const { return read_file(at(name), ExitCode::data); }
  std::vector<std::string> names() const { return list_directory(folder, ExitCode::data); }
};

TEST_F(OutputFileTest, TakesItsNameWhenItIsWhole) {
  check_output(at("not/there/yet"), rules(), ExitCode::usage);
  EXPECT_TRUE(names().empty());  // looking leaves nothing
  {
    OutputFile output(at("a"), rules(), ExitCode::usage);
    output.file().write("ours, half");
    EXPECT_FALSE(path_exists(at("a")));
  }
  EXPECT_TRUE(names().empty());  // what is not published is gone
  make(at("a"), rules());
  make(at("a"), rules(), "ours, newer");
  EXPECT_EQ(content("a"), "ours, newer");
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(OutputFileTest, ReplacesItsLikeAloneUnlessToldTo) {
  write("a", "a corpus");
  expect_refused(at("a"), rules(), at("a") + ": exists and is not our kind; choose another");
  OutputRules never = rules();
  never.is_former = nullptr;
  expect_refused(at("a"), never, "is never overwritten");
  EXPECT_EQ(content("a"), "a corpus");
  make(at("a"), rules(true));
  EXPECT_EQ(content("a"), "ours, new");
  expect_refused("", rules(true), "is empty");
  expect_refused(at("a/"), rules(true), "is a folder");
  expect_refused(at("a/b"), rules(true), at("a") + " is not a folder");
}

TEST_F(OutputFileTest, NeverAnInputNorALinkNorWhatIsNoFile) {
  write("input", "ours by chance");
  ASSERT_EQ(::link(at("input").c_str(), at("same").c_str()), 0);
  ASSERT_EQ(::symlink("input", at("link").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", at("dangling").c_str()), 0);
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  fs::create_directory(at("folder"));
  for (const bool overwrite : {false, true}) {
    const OutputRules how = rules(overwrite, {at("none"), at("input")});
    expect_refused(at("input"), how, "which this run uses");
    expect_refused(folder + "/./input", how, "which this run uses");
    expect_refused(at("same"), how, "which this run uses");
    expect_refused(at("link"), how, "it is a link");
    expect_refused(at("dangling"), how, "it is a link");
    expect_refused(at("fifo"), how, "it is a FIFO");
    expect_refused(at("folder"), how, "it is a folder");
  }
  EXPECT_EQ(content("input"), "ours by chance");
  EXPECT_EQ(names(), (std::vector<std::string>{"dangling", "fifo", "folder", "input", "link", "same"}));
}

TEST_F(OutputFileTest, LooksAgainBeforeItTakesTheName) {
  OutputRules never = rules();
  never.is_former = nullptr;
  for (const OutputRules& how : {rules(), never}) {
    OutputFile output(at("a"), how, ExitCode::usage);
    output.file().write("ours");
    write("a", "somebody else's");
    error_of(ExitCode::usage, [&] { output.publish(); });
    EXPECT_EQ(content("a"), "somebody else's");
    fs::remove(at("a"));
  }
  EXPECT_TRUE(names().empty());
}

TEST_F(OutputFileTest, HasOneWriterAndCleansUpBehindKilledOnes) {
  write("a.partial-1-0123abcd", "of a process that was killed");
  write("b.partial-1-0123abcd", "of another output");
  write("a.partial", "a user's");
  {
    OutputFile first(at("a"), rules(), ExitCode::usage);
    EXPECT_FALSE(path_exists(at("a.partial-1-0123abcd")));
    expect_refused(at("a"), rules(true), at("a") + ": process " + std::to_string(::getpid()) + " is writing it now");
    make(at("b"), rules());  // another output is free
    first.file().write("ours, first");
    first.publish();
  }
  EXPECT_EQ(content("a"), "ours, first");
  make(at("a"), rules());
  EXPECT_EQ(names(), (std::vector<std::string>{"a", "a.partial", "b"}));
  EXPECT_EQ(content("a.partial"), "a user's");
}

}  // namespace
}  // namespace ringtrain::testing
