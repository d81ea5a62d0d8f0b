// framework/files.h and framework/hash.h: what is written is read again, and every failure is an Error with the
// caller's code that names the path.
#include "framework/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "framework/hash.h"
#include "tests/support/error_of.h"

namespace ringtrain {
namespace {

using testing::error_of;

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "ringtrain-files-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::string in_folder(const std::string& name) const { return folder + "/" + name; }
  std::string folder;
};

TEST_F(FilesTest, WriteReplacesWholeFileAndLeavesNoTemporary) {
  const std::string path = in_folder("a.json");
  write_file(path, "a first and longer text", ExitCode::data);
  write_file(path, "second", ExitCode::data);
  EXPECT_EQ(read_file(path, ExitCode::data), "second");
  EXPECT_EQ(list_directory(folder, ExitCode::data), std::vector<std::string>{"a.json"});
}

TEST_F(FilesTest, ReadsAndWritesAtOffsets) {
  File file = File::create(in_folder("b"), ExitCode::data);
  file.write_at(3, "defg", 4);
  file.write_at(0, "abc", 3);
  char text[5]{};
  file.read_at(2, text, 4);
  EXPECT_STREQ(text, "cdef");
  EXPECT_EQ(file.size(), 7);
  file.truncate(5);
  const std::string message = error_of(ExitCode::data, [&] { file.read_at(2, text, 4); });
  EXPECT_NE(message.find("ends at byte 5"), std::string::npos) << message;
}

TEST_F(FilesTest, AppendsToWhatIsThere) {
  File::append_to(in_folder("log"), ExitCode::usage).write("one\n");
  File::append_to(in_folder("log"), ExitCode::usage).write("two\n");
  EXPECT_EQ(read_file(in_folder("log"), ExitCode::usage), "one\ntwo\n");
}

TEST_F(FilesTest, CreateRefusesWhatExists) {
  File::create(in_folder("c"), ExitCode::usage).close();
  const std::string message = error_of(ExitCode::usage, [&] { File::create(in_folder("c"), ExitCode::usage); });
  EXPECT_NE(message.find("File exists"), std::string::npos) << message;
}

TEST_F(FilesTest, FailuresNamePathAndReason) {
  const std::string path = in_folder("missing");
  for (const auto& message : {error_of(ExitCode::checkpoint, [&] { File::open(path, ExitCode::checkpoint); }),
                              error_of(ExitCode::data, [&] { read_file(path, ExitCode::data); }),
                              error_of(ExitCode::data, [&] { file_size(path, ExitCode::data); }),
                              error_of(ExitCode::data, [&] { list_directory(path, ExitCode::data); }),
                              error_of(ExitCode::data, [&] { rename_path(path, in_folder("x"), ExitCode::data); }),
                              error_of(ExitCode::data, [&] { hash_file(path, ExitCode::data); })}) {
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_NE(message.find("No such file or directory"), std::string::npos) << message;
  }
  const std::string message = error_of(ExitCode::data, [&] { File::open(folder, ExitCode::data); });
  EXPECT_NE(message.find("it is a folder"), std::string::npos) << message;
  write_file(in_folder("big"), "0123456789", ExitCode::data);
  EXPECT_NE(error_of(ExitCode::data, [&] { read_file(in_folder("big"), ExitCode::data, 9); }).find("10 bytes"),
            std::string::npos);
}

TEST_F(FilesTest, FullDiskSaysWhatItNeeds) {
  if (!path_exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  File full = File::open_for_update("/dev/full", ExitCode::checkpoint);
  const std::string message = error_of(ExitCode::checkpoint, [&] { full.write("123456"); });
  EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
  EXPECT_NE(message.find("needs 6 bytes"), std::string::npos) << message;
}

TEST_F(FilesTest, ReserveMoreThanTheDiskHolds) {
  File file = File::create(in_folder("huge"), ExitCode::checkpoint);
  const std::int64_t more = free_bytes(folder, ExitCode::data) + (std::int64_t{1} << 42);
  const std::string message = error_of(ExitCode::checkpoint, [&] { file.reserve(more); });
  EXPECT_NE(message.find(file.path()), std::string::npos) << message;
  EXPECT_NE(message.find(std::to_string(more)), std::string::npos) << message;
}

TEST_F(FilesTest, FolderThatCannotBeWritten) {
  EXPECT_NO_THROW(check_writable(folder, ExitCode::usage));
  EXPECT_TRUE(list_directory(folder, ExitCode::usage).empty());
  EXPECT_NE(error_of(ExitCode::usage, [] { check_writable("/proc", ExitCode::usage); }).find("/proc"),
            std::string::npos);
  EXPECT_NE(error_of(ExitCode::usage, [&] { check_writable(in_folder("no"), ExitCode::usage); }).find("does not exist"),
            std::string::npos);
}

TEST_F(FilesTest, FoldersAndTrees) {
  make_directories(in_folder("x/y/z"), ExitCode::usage);
  make_directories(in_folder("x/y/z"), ExitCode::usage);
  write_file(in_folder("x/y/f"), "f", ExitCode::usage);
  EXPECT_TRUE(is_directory(in_folder("x/y/z")));
  EXPECT_NE(error_of(ExitCode::usage, [&] { make_directories(in_folder("x/y/f/g"), ExitCode::usage); }).find("x/y/f"),
            std::string::npos);
  rename_path(in_folder("x/y"), in_folder("w"), ExitCode::usage);
  EXPECT_EQ(list_directory(in_folder("w"), ExitCode::usage), (std::vector<std::string>{"f", "z"}));
  remove_tree(in_folder("w"), ExitCode::usage);
  remove_tree(in_folder("w"), ExitCode::usage);
  EXPECT_FALSE(path_exists(in_folder("w")));
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
  write_file(in_folder("long"), long_text, ExitCode::data);
  EXPECT_EQ(hash_file(in_folder("long"), ExitCode::data), hash_bytes(long_text));
  write_file(in_folder("none"), "", ExitCode::data);
  EXPECT_EQ(hash_file(in_folder("none"), ExitCode::data), hash_bytes(""));
}

TEST_F(FilesTest, OneHoldsALockAndOthersAreToldWho) {
  const std::string path = in_folder("lock"), own = std::to_string(::getpid());
  const auto refusal = [&] {
    return error_of(ExitCode::usage, [&] { FileLock::acquire(path, "taken by", ExitCode::usage); });
  };
  {
    const FileLock first = FileLock::acquire(path, "taken by", ExitCode::usage);
    EXPECT_EQ(refusal(), "taken by process " + own + " (" + path + " is locked); wait until it has ended");
    EXPECT_EQ(read_file(path, ExitCode::usage), own + "\n");  // he who was refused has changed nothing
  }
  write_file(path, "a long number from long ago", ExitCode::usage);  // its process is gone, and so is its lock
  FileLock second = FileLock::acquire(path, "taken by", ExitCode::usage);
  EXPECT_EQ(read_file(path, ExitCode::usage), own + "\n");
  const FileLock moved = std::move(second);
  EXPECT_NE(refusal().find(own), std::string::npos);
}

}  // namespace
}  // namespace ringtrain
