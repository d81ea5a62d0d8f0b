// What the product does in one place only, because every caller would else have to remember something.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

namespace fs = std::filesystem;

/// Returns file:line of each line of the product's code that holds `text`, but in the files `where`.
std::string lines_elsewhere(const std::string& text, const std::set<std::string>& where) {
  std::string found;
  const fs::path root = source_folder();
  for (const char* const floor : {"framework", "data", "kernels", "parallel", "layers", "train"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / floor)) {
      const std::string name = fs::relative(entry.path(), root).string();
      if (!entry.is_regular_file() || where.contains(name)) continue;
      std::ifstream file(entry.path());
      int number = 0;
      for (std::string line; std::getline(file, line);) {
        ++number;
        if (line.substr(0, line.find("//")).find(text) != std::string::npos) {
          found += name + ":" + std::to_string(number) + "\n";
        }
      }
    }
  }
  return found;
}

// A thread works on the GPU of the thread that starts it. One that calls CUDA without a GPU of its own makes a context
// on GPU 0, of half a gigabyte, for every process of the machine.
TEST(OnePlace, StartsThreads) {
  const std::set<std::string> place{"framework/threads.h"};
  EXPECT_EQ(lines_elsewhere("std::async", place), "");
  EXPECT_EQ(lines_elsewhere("jthread", place), "");
  EXPECT_EQ(lines_elsewhere("pthread_create", place), "");
  EXPECT_EQ(lines_elsewhere("std::thread", {"framework/threads.h", "framework/cores.cpp"}), "");  // the number of cores
}

TEST(OnePlace, ChoosesAThreadsGpu) {
  EXPECT_EQ(lines_elsewhere("cudaSetDevice", {"framework/cuda/current_device.cpp"}), "");
}

}  // namespace
}  // namespace ringtrain::testing
