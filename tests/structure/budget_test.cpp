// The core has a budget per floor (budget.txt): new code must take its lines from elsewhere.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

namespace fs = std::filesystem;
using Budget = std::map<std::string, int>;

/// Returns the number of lines of a file that are neither empty nor only a comment.
int code_lines(std::istream& file, const std::string& comment) {
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin != std::string::npos && line.compare(begin, comment.size(), comment) != 0) ++count;
  }
  return count;
}

/// Returns the code lines of a folder: C++, CUDA, C and Python.
int code_lines_of(const std::string& folder) {
  const std::set<std::string> languages{".h", ".cpp", ".cu", ".cuh", ".c", ".py"};
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string kind = entry.path().extension().string();
    if (!entry.is_regular_file() || !languages.contains(kind)) continue;
    std::ifstream file(entry.path());
    count += code_lines(file, kind == ".py" ? "#" : "//");
  }
  return count;
}

Budget parse_budget(std::istream& file) {
  Budget budget;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string folder;
    int lines = 0;
    if (words >> folder >> lines) budget[folder] = lines;
  }
  return budget;
}

/// Returns a sentence for each folder that has more code lines than its row allows, or has no row.
std::string over_budget(const Budget& found, const Budget& budget) {
  std::string problems;
  for (const auto& [folder, lines] : found) {
    const auto row = budget.find(folder);
    if (row == budget.end()) {
      problems += folder + " has no row in tests/structure/budget.txt\n";
    } else if (lines > row->second) {
      problems += folder + " has " + std::to_string(lines) + " code lines, and its budget is " +
                  std::to_string(row->second) + ": take as many away as were added\n";
    }
  }
  return problems;
}

TEST(Budget, EachFloorKeepsToIt) {
  std::ifstream file(source_folder() + "/tests/structure/budget.txt");
  const Budget budget = parse_budget(file);
  Budget found;
  for (const char* folder :
       {"framework", "data", "kernels", "parallel", "layers", "reference", "train", "ringtrain", "extras", "tests"}) {
    found[folder] = code_lines_of(source_folder() + "/" + folder);
  }
  EXPECT_EQ(over_budget(found, budget), "");
  EXPECT_EQ(found.size(), budget.size()) << "budget.txt has a row of a folder that is not counted";
}

TEST(Budget, SeesALineTooManyAndAMissingRow) {
  std::istringstream text("# of each folder\nframework 3  # asked for by nobody\n");
  const Budget budget = parse_budget(text);
  EXPECT_EQ(over_budget({{"framework", 3}}, budget), "");
  EXPECT_EQ(over_budget({{"framework", 4}}, budget),
            "framework has 4 code lines, and its budget is 3: take as many away as were added\n");
  EXPECT_EQ(over_budget({{"data", 1}}, budget), "data has no row in tests/structure/budget.txt\n");
  std::istringstream code("int a;\n\n  // a comment\n  int b;  // code\n\t\n#include <x>\n");
  EXPECT_EQ(code_lines(code, "//"), 3);
}

}  // namespace
}  // namespace ringtrain::testing
