// framework/output/output_file.h: a file gets its name when it is complete, replaces only files of its kind, and has
// one writer.
#include "framework/output/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <type_traits>

#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"

namespace ringtrain::testing {
namespace {

// No rule can be made without its parts, or out of another.
static_assert(!std::is_default_constructible_v<OutputRules> && !std::is_aggregate_v<OutputRules>);
static_assert(!std::is_constructible_v<OutputRules, OutputKind, OutputMark>);
static_assert(!std::is_constructible_v<OutputRules, OutputKind, OutputInputs>);
static_assert(!std::is_default_constructible_v<OutputMark> && !std::is_default_constructible_v<OutputInputs>);
static_assert(!std::is_convertible_v<std::string, OutputMark>);

constexpr std::string_view head = "ours, and nobody else's: ";

class OutputFileTest : public FolderTest {
 protected:
  /// Returns rules that recognize a file that begins with `head` as an earlier output.
  static OutputRules rules(const std::vector<std::string>& inputs = {}, OutputMark mark = OutputMark::begins(head)) {
    return {{"our kind", "--output"}, std::move(mark), OutputInputs::from([inputs] { return inputs; })};
  }
  static OutputRules never() { return rules({}, OutputMark::none()); }
  static void make(const std::string& path, const OutputRules& how, const std::string& content = "new") {
    OutputFile output(path, how, ExitCode::usage);
    output.file().write(std::string(head) + content);
    output.publish();
  }
  /// Expects that both the earlier check and the creation are refused with this text.
  static void expect_refused(const std::string& path, const OutputRules& how, const std::string& part) {
    expect_error(ExitCode::usage, part, [&] { check_output(path, how, ExitCode::usage); });
    expect_error(ExitCode::usage, part, [&] { make(path, how); });
  }
  void write(const std::string& name, const std::string& content) const {
    write_file(at(name), content, ExitCode::data);
  }
  std::string content(const std::string& name) const {  // without making it an input
    std::ifstream file(at(name));
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::string ours(const std::string& content = "new") const { return std::string(head) + content; }
  std::vector<std::string> names() const { return list_directory(folder, ExitCode::data); }
};

TEST_F(OutputFileTest, TakesItsNameWhenItIsWhole) {
  check_output(at("not/there/yet"), rules(), ExitCode::usage);
  EXPECT_TRUE(names().empty());  // checking leaves nothing behind
  {
    OutputFile output(at("a"), rules(), ExitCode::usage);
    output.file().write(ours("half"));
    EXPECT_FALSE(path_exists(at("a")));
  }
  EXPECT_TRUE(names().empty());  // an unpublished file is removed
  make(at("a"), rules());
  make(at("a"), rules(), "newer");
  EXPECT_EQ(content("a"), ours("newer"));
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(OutputFileTest, ReplacesOnlyFilesOfItsKind) {
  write("a", "a corpus");
  expect_refused(at("a"), rules(),
                 at("a") + ": exists and is not our kind, judging by its first bytes; remove it first");
  expect_refused(at("a"), never(), "is never overwritten");
  EXPECT_EQ(content("a"), "a corpus");
  expect_refused("", rules(), "is empty");
  expect_refused(at("a/"), rules(), "ends in / like a folder");
  expect_refused(at("a/b"), rules(), at("a") + " is not a folder");
  expect_refused(at(std::string(240, 'a')), rules(), "File name too long");  // with the end of a temporary name
}

TEST_F(OutputFileTest, NeverAnInputNorALinkNorWhatIsNoFile) {
  write("input", ours("by chance"));
  ASSERT_EQ(::link(at("input").c_str(), at("same").c_str()), 0);
  ASSERT_EQ(::symlink("input", at("link").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", at("dangling").c_str()), 0);
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  fs::create_directory(at("folder"));
  const OutputRules how = rules({at("none"), at("input")});
  expect_refused(at("input"), how, "which this run uses");
  expect_refused(folder + "/./input", how, "which this run uses");
  expect_refused(at("same"), how, "which this run uses");
  expect_refused(at("link"), how, "it is a link");
  expect_refused(at("dangling"), how, "it is a link");
  expect_refused(at("fifo"), how, "it is a FIFO");
  expect_refused(at("folder"), how, "it is a folder");
  EXPECT_EQ(content("input"), ours("by chance"));
  EXPECT_EQ(names(), (std::vector<std::string>{"dangling", "fifo", "folder", "input", "link", "same"}));
}

// What a person's file may contain by accident: what a format requires, what we write after the mark, a part of the
// mark.
TEST_F(OutputFileTest, OnlyItsFirstBytesMakeAFileAnEarlierOutput) {
  for (const std::string& other : {std::string("<!DOCTYPE html>\n"), "  " + ours(), "\n" + ours(), "a note: " + ours(),
                                   std::string(head.substr(0, head.size() - 1)), std::string()}) {
    write("a", other);
    expect_refused(at("a"), rules(), "by its first bytes");
    EXPECT_EQ(content("a"), other);
  }
  const OutputRules json = rules({}, OutputMark::json("ringtrain test"));
  for (const std::string other : {R"({"written_by": "ringtrain test", "a": 1})", R"({"kind": "plan"})", "{}"}) {
    write("a", other);
    expect_refused(at("a"), json, "by its first bytes");
  }
  write("a", marked_json("ringtrain test", "{\n  \"a\": 1\n}"));
  EXPECT_NO_THROW(check_output(at("a"), json, ExitCode::usage));
  EXPECT_EQ(content("a"), "{\n  \"written_by\": \"ringtrain test\",\n  \"a\": 1\n}");
}

TEST_F(OutputFileTest, IsNotPublishedWithoutItsMark) {
  OutputFile output(at("a"), rules(), ExitCode::usage);
  output.file().write("what a program wrote that forgot the mark");
  error_of(ExitCode::internal, [&] { output.publish(); });
  EXPECT_FALSE(path_exists(at("a")));
}

// Even if a program forgets to list a file, it does not replace one that it has opened, by any name and in any way.
TEST_F(OutputFileTest, NeverAFileThatTheProcessHasUsed) {
  const std::vector<std::function<void(const std::string&)>> uses{
      [](const std::string& path) { read_file(path, ExitCode::data); },
      [](const std::string& path) { File::open(path, ExitCode::data); },
      [](const std::string& path) { File::open_for_update(path, ExitCode::data); },
      [](const std::string& path) { File::open_or_create(path, ExitCode::data); },
      [](const std::string& path) { File::append_to(path, ExitCode::data); }};
  int number = 0;
  for (const auto& use : uses) {
    const std::string name = "used-" + std::to_string(number++);
    write(name, ours("old"));
    EXPECT_NO_THROW(check_output(at(name), rules(), ExitCode::usage));
    use(at(name));
    ASSERT_EQ(::link(at(name).c_str(), at(name + "-too").c_str()), 0);
    expect_refused(at(name), rules(), "is a file that this run uses");
    expect_refused(at(name + "-too"), rules(), "is a file that this run uses");
    EXPECT_EQ(content(name), ours("old"));
  }
  write("former", ours("old"));
  EXPECT_EQ(read_previous_output(at("former"), rules(), ExitCode::usage), ours("old"));
  make(at("former"), rules());  // it was read in order to be rewritten
  EXPECT_EQ(content("former"), ours());
  read_file(at("former"), ExitCode::data);
  remove_tree(at("former"), ExitCode::data);
  write("other", ours("gets the inode that has become free"));
  EXPECT_NO_THROW(make(at("other"), rules()));
}

TEST_F(OutputFileTest, LooksAgainBeforeItTakesTheName) {
  for (const OutputRules& how : {rules(), never()}) {
    OutputFile output(at("a"), how, ExitCode::usage);
    output.file().write(ours());
    write("a", "somebody else's");
    error_of(ExitCode::usage, [&] { output.publish(); });
    EXPECT_EQ(content("a"), "somebody else's");
    fs::remove(at("a"));
  }
  EXPECT_TRUE(names().empty());
}

// There may be minutes between the beginning of a computation and its output.
TEST_F(OutputFileTest, SaysThatItsFolderIsGone) {
  for (const bool replaced : {false, true}) {
    fs::create_directory(at("results"));
    OutputFile output(at("results/out"), rules(), ExitCode::usage);
    output.file().write(ours());
    fs::remove_all(at("results"));
    if (replaced) fs::create_directory(at("results"));
    expect_error(ExitCode::usage, at("results/out") + ": its temporary file " + output.partial() + " was deleted",
                 [&] { output.publish(); });
    fs::remove_all(at("results"));
  }
}

TEST_F(OutputFileTest, HasOneWriterAndCleansUpBehindKilledOnes) {
  write("a.partial-1-0123abcd", "of a process that was killed");
  write("b.partial-1-0123abcd", "of another output");
  write("a.partial", "a user's");
  {
    OutputFile first(at("a"), rules(), ExitCode::usage);
    EXPECT_FALSE(path_exists(at("a.partial-1-0123abcd")));
    expect_refused(at("a"), rules(), at("a") + ": process " + std::to_string(::getpid()) + " is writing it now");
    make(at("b"), rules());  // another output is available
    first.file().write(ours("first"));
    first.publish();
  }
  EXPECT_EQ(content("a"), ours("first"));
  make(at("a"), rules());
  EXPECT_EQ(names(), (std::vector<std::string>{"a", "a.partial", "b"}));
  EXPECT_EQ(content("a.partial"), "a user's");
}

}  // namespace
}  // namespace ringtrain::testing
