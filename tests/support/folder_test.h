// For tests that write files: a separate folder for each, which is removed when the test ends.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace ringtrain::testing {

namespace fs = std::filesystem;

class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "ringtrain-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  /// Returns the path of a name in the folder.
  std::string at(const std::string& name) const { return folder + "/" + name; }

  std::string folder;
};

}  // namespace ringtrain::testing
