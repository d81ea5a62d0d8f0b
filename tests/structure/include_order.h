// Whether the includes of the product keep to the declared order of its folders (order.txt), and whether the units of a
// folder are free of circles. A unit is a header with the sources of its name: ring.h, ring.cpp, ring.cu.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace ringtrain::testing {

/// The declared order of the folders.
struct FolderOrder {
  std::vector<std::string> folders;                     // lowest first
  std::map<std::string, std::set<std::string>> behind;  // folder: those whose sources may include it, too

  /// Returns the order that `text` declares: a folder a line, then perhaps "behind" and folders; '#' begins a comment.
  /// Throws std::runtime_error for a folder that is declared twice, or stands behind one that is not above it here.
  static FolderOrder parse(const std::string& text);
};

/// The quoted includes of each file, by the file's path from the root of the checkout.
using Includes = std::map<std::string, std::vector<std::string>>;

/// Returns the quoted includes of all .h, .cpp, .cu and .cuh files below the named folders of `root`.
Includes read_includes(const std::string& root, const std::set<std::string>& folders);

/// Returns a sentence for each include that points up or out of the product, and for each folder without a place.
std::vector<std::string> upward_includes(const FolderOrder& order, const Includes& includes);

/// Returns a sentence for each circle of units within one folder.
std::vector<std::string> circles(const Includes& includes);

/// Returns a sentence for each folder with more than `most` files of its own.
std::vector<std::string> crowded_folders(const Includes& includes, int most);

}  // namespace ringtrain::testing
