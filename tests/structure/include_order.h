// Checks that the includes of the product follow the declared order of its folders (order.txt), and that the units of a
// folder have no cycles. A unit is a header with the sources of its name: ring.h, ring.cpp, ring.cu.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace ringtrain::testing {

/// The declared order of the folders.
struct FolderOrder {
  std::vector<std::string> folders;                     // lowest first
  std::map<std::string, std::set<std::string>> behind;  // folder: others whose sources may also include it

  /// Returns the order that `text` declares: one folder per line, optionally followed by "behind" and folders; '#'
  /// begins a comment. Throws std::runtime_error for a folder that is declared twice, or is behind one that is not
  /// above it here.
  static FolderOrder parse(const std::string& text);
};

/// The quoted includes of each file, by the file's path from the root of the checkout.
using Includes = std::map<std::string, std::vector<std::string>>;

/// Returns the quoted includes of all .h, .cpp, .cu, and .cuh files below the named folders of `root`.
Includes read_includes(const std::string& root, const std::set<std::string>& folders);

/// Returns a sentence for each include that points up or out of the product, and for each folder that is not declared.
std::vector<std::string> upward_includes(const FolderOrder& order, const Includes& includes);

/// Returns a sentence for each cycle of units within one folder.
std::vector<std::string> circles(const Includes& includes);

/// Returns a sentence for each folder that directly contains more than `most` files.
std::vector<std::string> crowded_folders(const Includes& includes, int most);

}  // namespace ringtrain::testing
