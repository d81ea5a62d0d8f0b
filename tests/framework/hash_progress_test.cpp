// Hashing a large file shows progress; hashing a small one does not, and other threads print nothing.
#include "framework/profile/hash_progress.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "framework/storage/files.h"
#include "tests/support/folder_test.h"

namespace ringtrain::testing {
namespace {

class HashProgressTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    write_file(at("large"), std::string(std::size_t{3} << 20, 'x'), ExitCode::data);
  }
  /// Returns the text printed while body runs.
  template <class Body>
  std::string printed(double patience, Body&& body) const {
    const std::string path = at("reported");
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "w"), std::fclose);
    {
      const HashProgress progress("train", patience, file.get());
      body();
    }
    hash_file(at("large"), ExitCode::data);  // no listener any more
    std::fflush(file.get());
    return read_file(path, ExitCode::data);
  }
};

TEST_F(HashProgressTest, ALargeFileIsReportedAndNoOther) {
  const auto hash = [&] { hash_file(at("large"), ExitCode::data); };
  EXPECT_EQ(printed(1e9, hash), "");  // it did not take that long
  const std::string text = printed(0, hash);
  EXPECT_TRUE(text.starts_with("train 0/3145728 (0%) hashing " + at("large"))) << text;
  EXPECT_NE(text.find("train 3145728/3145728 (100%) hashing " + at("large")), std::string::npos) << text;
  EXPECT_EQ(printed(0, [&] { std::thread(hash).join(); }), "");
}

}  // namespace
}  // namespace ringtrain::testing
