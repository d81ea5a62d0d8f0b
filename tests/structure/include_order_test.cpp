// The product's includes follow order.txt; and the check itself detects an upward include, a cycle, and a full folder.
#include "tests/structure/include_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

const std::set<std::string> product{"framework", "kernels", "parallel",  "data",  "layers",
                                    "reference", "train",   "ringtrain", "extras"};

FolderOrder declared_order() {
  std::ifstream file(source_folder() + "/tests/structure/order.txt");
  return FolderOrder::parse({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
}

std::string lines(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) text += problem + "\n";
  return text;
}

TEST(Structure, IncludesPointDown) {
  const Includes includes = read_includes(source_folder(), product);
  ASSERT_GT(includes.size(), 200U);
  EXPECT_EQ(lines(upward_includes(declared_order(), includes)), "");
}

TEST(Structure, UnitsOfAFolderFormNoCircle) {
  EXPECT_EQ(lines(circles(read_includes(source_folder(), product))), "");
}

TEST(Structure, EveryDeclaredFolderExists) {
  const Includes includes = read_includes(source_folder(), product);
  for (const std::string& folder : declared_order().folders) {
    const auto file = includes.lower_bound(folder + "/");
    EXPECT_TRUE(file != includes.end() && file->first.starts_with(folder + "/")) << folder;
  }
}

// The core builds without the extras, and each of these builds without the others, except extend, which combines them.
TEST(Structure, NothingIncludesAnExtraButItself) {
  const Includes includes = read_includes(source_folder(), product);
  const auto extra_of = [](const std::string& path) {
    return path.starts_with("extras/") ? path.substr(0, path.find('/', 7)) : std::string();
  };
  std::string found;
  for (const auto& [file, included] : includes) {
    for (const std::string& header : included) {
      const std::string extra = extra_of(header);
      if (!extra.empty() && extra != extra_of(file) && extra_of(file) != "extras/extend")
        found += file + " includes " + header + "\n";
    }
  }
  EXPECT_EQ(found, "");
}

// Other tests use only the interface of the CUDA emulator, and it uses nothing of them or of the product.
TEST(Structure, TheEmulatorOfCudaIsAFolderOfItsOwn) {
  const std::string emulator = "tests/cuda_emulator/";
  const auto exists = [&](const std::string& path) { return std::filesystem::exists(source_folder() + "/" + path); };
  std::string found;
  for (const auto& [file, included] : read_includes(source_folder(), {"tests"})) {
    const bool inside = file.starts_with(emulator);
    const std::string folder = file.substr(0, file.rfind('/') + 1);
    for (const std::string& header : included) {
      const bool of_emulator = exists(emulator + header) || header.starts_with(emulator);
      const bool own = of_emulator || exists(emulator + "include/" + header) || exists(folder + header);
      if (inside ? !own : of_emulator) found += file + " includes " + header + "\n";
    }
  }
  EXPECT_EQ(found, "");
}

// A reader of the step must not have to know what begins, ends, or evaluates a run.
TEST(Structure, AStepSeesAtMostFiftyHeaders) {
  const Includes includes = read_includes(source_folder(), product);
  std::set<std::string> seen;
  std::vector<std::string> unread{"train/step/training_step.cpp"};
  while (!unread.empty()) {
    const std::vector<std::string>& headers = includes.at(unread.back());
    unread.pop_back();
    std::ranges::copy_if(headers, std::back_inserter(unread),
                         [&](const auto& path) { return seen.insert(path).second; });
  }
  EXPECT_LE(seen.size(), 50U) << lines({seen.begin(), seen.end()});
}

// Two pairs of a header and a source more than 25: such a folder should soon be split.
TEST(Structure, NoFolderIsAHall) {
  EXPECT_EQ(lines(crowded_folders(read_includes(source_folder(), product), 29)), "");
}

const FolderOrder small_order = FolderOrder::parse("low\nlow/other behind low  # its other half\nhigh\n");

TEST(StructureCheck, SeesAnUpwardInclude) {
  EXPECT_EQ(lines(upward_includes(small_order, {{"low/a.h", {"high/b.h"}}})),
            "low/a.h includes high/b.h, which is above it\n");
  EXPECT_EQ(lines(upward_includes(small_order, {{"high/b.h", {"low/a.h", "high/c.h"}}})), "");
}

TEST(StructureCheck, LetsOnlySourcesIncludeTheirOtherHalf) {
  EXPECT_EQ(lines(upward_includes(small_order, {{"low/a.cpp", {"low/other/b.h"}}})), "");
  EXPECT_EQ(lines(upward_includes(small_order, {{"low/a.h", {"low/other/b.h"}}})),
            "low/a.h includes low/other/b.h, which is above it\n");
}

TEST(StructureCheck, SeesAFolderWithoutAPlaceAndAnIncludeFromOutside) {
  EXPECT_EQ(lines(upward_includes(small_order, {{"new/a.h", {}}, {"low/a.h", {"tests/b.h"}}})),
            "low/a.h includes tests/b.h, which is outside the product's folders\n"
            "new/a.h: its folder has no place in the declared order\n");
}

TEST(StructureCheck, SeesACircleOfUnitsThroughASource) {
  EXPECT_EQ(lines(circles({{"low/a.h", {"low/b.h"}},
                           {"low/b.h", {}},
                           {"low/b.cpp", {"low/b.h", "low/c.h"}},
                           {"low/c.h", {"low/a.h"}}})),
            "low/a -> low/b -> low/c -> low/a\n");
  EXPECT_EQ(lines(circles({{"low/a.h", {"low/b.h"}}, {"low/a.cpp", {"low/a.h", "low/b.h"}}, {"low/b.h", {}}})), "");
}

TEST(StructureCheck, SeesAFullFolder) {
  EXPECT_EQ(lines(crowded_folders({{"low/a.h", {}}, {"low/b.h", {}}, {"high/c.h", {}}}, 1)),
            "low holds 2 files of its own\n");
}

TEST(StructureCheck, RefusesAnOrderThatContradictsItself) {
  EXPECT_THROW(FolderOrder::parse("low\nlow\n"), std::runtime_error);
  EXPECT_THROW(FolderOrder::parse("low behind high\nhigh\n"), std::runtime_error);
  EXPECT_THROW(FolderOrder::parse("low beside high\n"), std::runtime_error);
}

}  // namespace
}  // namespace ringtrain::testing
