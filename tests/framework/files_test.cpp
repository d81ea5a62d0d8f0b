// framework/storage/files.h and framework/storage/hash.h: written data is read back, and every failure is an Error with
// the caller's code that names the path.
#include "framework/storage/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/storage/hash.h"
#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"

namespace ringtrain::testing {
namespace {

class FilesTest : public testing::FolderTest {
 protected:
  /// Waits until the clock of ctime has advanced since the file was changed.
  void wait_for_tick(const File& file) const {
    do {
      write_file(at("tick"), "", ExitCode::data);
    } while (File::open(at("tick"), ExitCode::data).stamp().changed_ns == file.stamp().changed_ns);
  }
};

TEST_F(FilesTest, WriteReplacesWholeFileAndLeavesNoTemporary) {
  const std::string path = at("a.json");
  write_file(path, "a first and longer text", ExitCode::data);
  write_file(path, "second", ExitCode::data);
  EXPECT_EQ(read_file(path, ExitCode::data), "second");
  EXPECT_EQ(list_directory(folder, ExitCode::data), std::vector<std::string>{"a.json"});
}

TEST_F(FilesTest, APathLikeANameOnTheHubIsHintedAt) {
  EXPECT_EQ(hub_hint("HuggingFaceTB/SmolLM2-135M"),
            "; to download this model from the Hugging Face hub: hf download HuggingFaceTB/SmolLM2-135M --local-dir "
            "SmolLM2-135M");
  write_file(at("f"), "", ExitCode::data);
  for (const std::string& path : {at("owner/name"), std::string("gpt2"), std::string("./a/b"), std::string("a/b/c"),
                                  std::string("a/"), std::string("/a"), std::string("../x"), std::string("")}) {
    EXPECT_EQ(hub_hint(path), "") << path;
  }
}

TEST_F(FilesTest, ReadsAndWritesAtOffsets) {
  File file = File::create(at("b"), ExitCode::data);
  file.write_at(3, "defg", 4);
  file.write_at(0, "abc", 3);
  char text[5]{};
  file.read_at(2, text, 4);
  EXPECT_STREQ(text, "cdef");
  EXPECT_EQ(file.size(), 7);
  EXPECT_EQ(file.head(3) + file.head(8), "abcabcdefg");
  file.truncate(5);
  expect_error(ExitCode::data, "ends at byte 5", [&] { file.read_at(2, text, 4); });
}

TEST_F(FilesTest, AppendsToWhatIsThere) {
  File::append_to(at("log"), ExitCode::usage).write("one\n");
  File::append_to(at("log"), ExitCode::usage).write("two\n");
  EXPECT_EQ(read_file(at("log"), ExitCode::usage), "one\ntwo\n");
}

TEST_F(FilesTest, CreateRefusesWhatExists) {
  File::create(at("c"), ExitCode::usage).close();
  expect_error(ExitCode::usage, "File exists", [&] { File::create(at("c"), ExitCode::usage); });
}

TEST_F(FilesTest, FailuresNamePathAndReason) {
  const std::string path = at("missing");
  for (const auto& message : {error_of(ExitCode::checkpoint, [&] { File::open(path, ExitCode::checkpoint); }),
                              error_of(ExitCode::data, [&] { read_file(path, ExitCode::data); }),
                              error_of(ExitCode::data, [&] { file_size(path, ExitCode::data); }),
                              error_of(ExitCode::data, [&] { list_directory(path, ExitCode::data); }),
                              error_of(ExitCode::data, [&] { rename_path(path, at("x"), ExitCode::data); }),
                              error_of(ExitCode::data, [&] { hash_file(path, ExitCode::data); })}) {
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_NE(message.find("No such file or directory"), std::string::npos) << message;
  }
  expect_error(ExitCode::data, "it is a folder", [&] { File::open(folder, ExitCode::data); });
  write_file(at("big"), "0123456789", ExitCode::data);
  expect_error(ExitCode::data, "10 bytes", [&] { read_file(at("big"), ExitCode::data, 9); });
}

TEST_F(FilesTest, ALinkIsTheSameFileAndChangesNoStamp) {
  write_file(at("one"), "content", ExitCode::data);
  const File file = File::open(at("one"), ExitCode::data);
  const FileStamp before = file.stamp();
  wait_for_tick(file);
  ASSERT_TRUE(link_file(at("one"), at("two")));
  EXPECT_EQ(File::open(at("two"), ExitCode::data).stamp(), file.stamp());
  EXPECT_NE(file.stamp().changed_ns, before.changed_ns);
  EXPECT_EQ(file.stamp(), before);
  const FileStamp linked = file.stamp();
  wait_for_tick(file);
  remove_tree(at("two"), ExitCode::data);
  EXPECT_EQ(file.stamp(), linked);
  EXPECT_FALSE(link_file(at("missing"), at("three")));
  EXPECT_FALSE(link_file(at("one"), at("one")));
  // A write changes the stamp even if the modification time is restored, because of ctime.
  const FileStamp last = file.stamp();
  wait_for_tick(file);
  File::open_for_update(at("one"), ExitCode::data).write_at(0, "C", 1);
  const timespec times[2]{{last.modified_ns / 1'000'000'000, last.modified_ns % 1'000'000'000},
                          {last.modified_ns / 1'000'000'000, last.modified_ns % 1'000'000'000}};
  ASSERT_EQ(::utimensat(AT_FDCWD, at("one").c_str(), times, 0), 0);
  EXPECT_EQ(file.stamp().modified_ns, last.modified_ns);
  EXPECT_NE(file.stamp(), last);
}

TEST_F(FilesTest, ReserveMoreThanTheDiskHolds) {
  File file = File::create(at("huge"), ExitCode::checkpoint);
  const std::int64_t more = free_bytes(folder, ExitCode::data) + (std::int64_t{1} << 42);
  expect_error(ExitCode::checkpoint, fmt::format("{}: No space left on device: it needs {} bytes", file.path(), more),
               [&] { file.reserve(more); });
  EXPECT_EQ(free_bytes("/proc", ExitCode::data), INT64_MAX);  // a file system that does not count
}

TEST_F(FilesTest, FolderThatCannotBeWritten) {
  EXPECT_NO_THROW(check_writable(folder, ExitCode::usage));
  EXPECT_TRUE(list_directory(folder, ExitCode::usage).empty());
  expect_error(ExitCode::usage, "/proc", [] { check_writable("/proc", ExitCode::usage); });
  expect_error(ExitCode::usage, "does not exist", [&] { check_writable(at("no"), ExitCode::usage); });
}

TEST_F(FilesTest, WhatIsNoFileIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  for (const std::string& path : {at("fifo"), std::string("/dev/zero"), folder}) {
    const std::string kind = path == at("fifo") ? "it is a FIFO" : path == folder ? "it is a folder" : "it is a device";
    for (const auto& message : {error_of(ExitCode::data, [&] { File::open(path, ExitCode::data); }),
                                error_of(ExitCode::data, [&] { File::open_for_update(path, ExitCode::data); }),
                                error_of(ExitCode::data, [&] { File::open_or_create(path, ExitCode::data); }),
                                error_of(ExitCode::data, [&] { File::append_to(path, ExitCode::data); }),
                                error_of(ExitCode::data, [&] { read_file(path, ExitCode::data); }),
                                error_of(ExitCode::data, [&] { hash_file(path, ExitCode::data); }),
                                error_of(ExitCode::data, [&] { write_file(path, "text", ExitCode::data); })}) {
      EXPECT_NE(message.find(path + ": " + kind), std::string::npos) << message;
    }
  }
}

TEST_F(FilesTest, NothingIsWrittenThroughALink) {
  write_file(at("target"), "precious", ExitCode::data);
  for (const std::string target : {"target", "nowhere"}) {
    const std::string path = at("link-to-" + target);
    ASSERT_EQ(::symlink(target.c_str(), path.c_str()), 0);
    for (const auto& message : {error_of(ExitCode::data, [&] { File::open_for_update(path, ExitCode::data); }),
                                error_of(ExitCode::data, [&] { File::open_or_create(path, ExitCode::data); }),
                                error_of(ExitCode::data, [&] { File::append_to(path, ExitCode::data); }),
                                error_of(ExitCode::data, [&] { FileLock::acquire(path, "taken by", ExitCode::data); }),
                                error_of(ExitCode::data, [&] { write_file(path, "text", ExitCode::data); })}) {
      EXPECT_NE(message.find(path + ": it is a link"), std::string::npos) << message;
    }
  }
  EXPECT_EQ(read_file(at("link-to-target"), ExitCode::data), "precious");  // reading may follow links
  EXPECT_FALSE(path_exists(at("nowhere")));
}

TEST_F(FilesTest, ALockWritesOverNothingElse) {
  for (const std::string content :
       {"precious", "12 monkeys", "1234567890123456789012345678901234567890123456789012345678901234567890"}) {
    write_file(at("lock"), content, ExitCode::data);
    expect_error(ExitCode::usage, "is not a lock file of this program",
                 [&] { FileLock::acquire(at("lock"), "taken by", ExitCode::usage); });
    EXPECT_EQ(read_file(at("lock"), ExitCode::data), content);
  }
}

TEST_F(FilesTest, WritingLeavesOtherNamesUnchanged) {
  make_directories(at("a.json.partial"), ExitCode::data);
  write_file(at("a.json.partial/precious"), "mine", ExitCode::data);
  write_file(at("a.json"), "text", ExitCode::data);
  EXPECT_EQ(read_file(at("a.json.partial/precious"), ExitCode::data), "mine");
  EXPECT_EQ(list_directory(folder, ExitCode::data), (std::vector<std::string>{"a.json", "a.json.partial"}));
}

TEST_F(FilesTest, UniqueNamesAreKnownAgainAndNoOthers) {
  const std::string one = unique_name("x/a.h5", "partial"), two = unique_name("x/a.h5", "partial");
  EXPECT_NE(one, two);
  const std::string name = file_name(one);
  const auto parts = parse_unique_name(name, "partial");
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->base, "a.h5");
  EXPECT_EQ(parts->process, std::to_string(::getpid()));
  EXPECT_FALSE(parse_unique_name(name, "deleted"));
  for (const std::string other : {"a.h5.partial", "a.h5.partial-1", "a.h5.partial-1-0123456",
                                  "a.h5.partial-1-012345678", "a.h5.partial-1-0123456G", "a.h5.partial-x1-01234567",
                                  "a.h5.partial--01234567", ".partial-1-01234567", "a.h5.partial-1-01234567 "}) {
    EXPECT_FALSE(parse_unique_name(other, "partial")) << other;
  }
}

TEST_F(FilesTest, ANewNameReplacesNothing) {
  write_file(at("from"), "new", ExitCode::data);
  write_file(at("to"), "old", ExitCode::data);
  expect_error(ExitCode::data, "File exists", [&] { rename_to_new(at("from"), at("to"), ExitCode::data); });
  EXPECT_EQ(read_file(at("to"), ExitCode::data), "old");
  rename_to_new(at("from"), at("other"), ExitCode::data);
  EXPECT_EQ(read_file(at("other"), ExitCode::data), "new");
}

TEST_F(FilesTest, FoldersAndTrees) {
  make_directories(at("x/y/z"), ExitCode::usage);
  make_directories(at("x/y/z"), ExitCode::usage);
  write_file(at("x/y/f"), "f", ExitCode::usage);
  EXPECT_TRUE(is_directory(at("x/y/z")));
  expect_error(ExitCode::usage, "x/y/f", [&] { make_directories(at("x/y/f/g"), ExitCode::usage); });
  rename_path(at("x/y"), at("w"), ExitCode::usage);
  EXPECT_EQ(list_directory(at("w"), ExitCode::usage), (std::vector<std::string>{"f", "z"}));
  remove_tree(at("w"), ExitCode::usage);
  remove_tree(at("w"), ExitCode::usage);
  EXPECT_FALSE(path_exists(at("w")));
}

TEST_F(FilesTest, PathParts) {
  EXPECT_EQ(parent_directory("a"), ".");
  EXPECT_EQ(parent_directory("a/b"), "a");
  EXPECT_EQ(parent_directory("/a"), "/");
  EXPECT_EQ(parent_directory("a/b/"), "a");
  EXPECT_EQ(file_name("a/b/"), "b");
  EXPECT_EQ(file_name("b.h5"), "b.h5");
}

TEST_F(FilesTest, HashAgreesWithTheToolAndWithItsPieces) {
  // printf '' | xxh128sum, and printf abc | xxh128sum.
  EXPECT_EQ(hash_bytes(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_bytes("abc"), "06b05ab6733a618578af5f94892f3950");
  std::string long_text;
  for (int i = 0; i < 700000; ++i) long_text += static_cast<char>(i * 7 + i / 251);
  long_text += long_text;  // beyond one slice of hash_file
  Hasher pieces;
  for (std::size_t begin = 0, bytes = 1; begin < long_text.size(); begin += bytes, bytes = bytes * 3 + 1) {
    pieces.update(long_text.data() + begin, std::min(bytes, long_text.size() - begin));
  }
  EXPECT_EQ(pieces.digest(), hash_bytes(long_text));
  write_file(at("long"), long_text, ExitCode::data);
  EXPECT_EQ(hash_file(at("long"), ExitCode::data), hash_bytes(long_text));
  write_file(at("none"), "", ExitCode::data);
  EXPECT_EQ(hash_file(at("none"), ExitCode::data), hash_bytes(""));
}

TEST_F(FilesTest, OneHoldsALockAndOthersLearnWho) {
  const std::string path = at("lock"), own = std::to_string(::getpid());
  const auto refusal = [&] {
    return error_of(ExitCode::usage, [&] { FileLock::acquire(path, "taken by", ExitCode::usage); });
  };
  {
    const FileLock first = FileLock::acquire(path, "taken by", ExitCode::usage);
    EXPECT_EQ(refusal(), "taken by process " + own + " (" + path + " is locked); wait until it has ended");
    EXPECT_EQ(read_file(path, ExitCode::usage), own + "\n");  // the refused process has changed nothing
  }
  write_file(path, "123456789012345678901234567890\n", ExitCode::usage);  // its process has ended, so its lock is free
  FileLock second = FileLock::acquire(path, "taken by", ExitCode::usage);
  EXPECT_EQ(read_file(path, ExitCode::usage), own + "\n");
  const FileLock moved = std::move(second);
  EXPECT_NE(refusal().find(own), std::string::npos);
}

}  // namespace
}  // namespace ringtrain::testing
