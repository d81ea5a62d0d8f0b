// JSON is parsed in one place of the product, whose bounds no other can forget.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

namespace fs = std::filesystem;

TEST(Structure, OneFileParsesJson) {
  const std::regex parses(R"(\b(json|Json|ordered_json|basic_json<[^>]*>)::(parse|sax_parse|accept|from_\w+)\b)");
  std::string found;
  for (const char* folder : {"framework", "kernels", "parallel", "data", "layers", "train"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(source_folder()) / folder)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path());
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      if (std::regex_search(text, parses)) found += fs::relative(entry.path(), source_folder()).string() + "\n";
    }
  }
  EXPECT_EQ(found, "framework/storage/strict_json.cpp\n");
}

}  // namespace
}  // namespace ringtrain::testing
