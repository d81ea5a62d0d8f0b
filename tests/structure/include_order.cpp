#include "tests/structure/include_order.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace ringtrain::testing {

namespace {

namespace fs = std::filesystem;

std::string folder_of(const std::string& file) {
  return fs::path(file).parent_path().string();
}

std::string unit_of(const std::string& file) {
  return (fs::path(file).parent_path() / fs::path(file).stem()).string();
}

bool is_code(const fs::path& path) {
  static const std::set<std::string> endings{".h", ".cpp", ".cu", ".cuh"};
  return endings.contains(path.extension().string());
}

bool is_source(const std::string& file) {
  return file.ends_with(".cpp") || file.ends_with(".cu");
}

/// Returns the text between quotes in a line that includes a file, or nothing.
std::optional<std::string> included_by(std::string line) {
  line.erase(std::remove_if(line.begin(), line.end(), [](char c) { return c == ' ' || c == '\t'; }), line.end());
  const std::string start = "#include\"";
  if (!line.starts_with(start)) return std::nullopt;
  return line.substr(start.size(), line.find('"', start.size()) - start.size());
}

}  // namespace

FolderOrder FolderOrder::parse(const std::string& text) {
  FolderOrder order;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string folder, word;
    if (!(words >> folder)) continue;
    const auto known = [&](const std::string& name) {
      return std::find(order.folders.begin(), order.folders.end(), name) != order.folders.end();
    };
    if (known(folder)) throw std::runtime_error(folder + " is declared twice");
    if (words >> word && word != "behind") throw std::runtime_error("'" + word + "' where 'behind' was expected");
    while (words >> word) {
      if (!known(word)) throw std::runtime_error(folder + " stands behind " + word + ", which is not above it here");
      order.behind[folder].insert(word);
    }
    order.folders.push_back(folder);
  }
  return order;
}

Includes read_includes(const std::string& root, const std::set<std::string>& folders) {
  Includes includes;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / folder)) {
      if (!entry.is_regular_file() || !is_code(entry.path())) continue;
      std::vector<std::string>& found = includes[fs::relative(entry.path(), root).string()];
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        if (const auto target = included_by(line)) found.push_back(*target);
      }
    }
  }
  return includes;
}

std::vector<std::string> upward_includes(const FolderOrder& order, const Includes& includes) {
  std::vector<std::string> problems;
  const auto place_of = [&](const std::string& folder) -> std::optional<std::ptrdiff_t> {
    const auto place = std::find(order.folders.begin(), order.folders.end(), folder);
    if (place == order.folders.end()) return std::nullopt;
    return place - order.folders.begin();
  };
  for (const auto& [file, targets] : includes) {
    const std::string from = folder_of(file);
    const auto own = place_of(from);
    if (!own) {
      problems.push_back(file + ": its folder has no place in the declared order");
      continue;
    }
    for (const std::string& target : targets) {
      const std::string to = folder_of(target);
      if (to == from) continue;
      const auto other = place_of(to);
      const auto behind = order.behind.find(to);
      const bool other_half = behind != order.behind.end() && behind->second.contains(from) && is_source(file);
      if (!other) {
        problems.push_back(file + " includes " + target + ", which is outside the product's folders");
      } else if (*other > *own && !other_half) {
        problems.push_back(file + " includes " + target + ", which is above it");
      }
    }
  }
  return problems;
}

std::vector<std::string> circles(const Includes& includes) {
  std::map<std::string, std::set<std::string>> needs;
  for (const auto& [file, targets] : includes) {
    for (const std::string& target : targets) {
      if (folder_of(target) == folder_of(file) && unit_of(target) != unit_of(file)) {
        needs[unit_of(file)].insert(unit_of(target));
      }
    }
  }
  std::vector<std::string> problems;
  std::vector<std::string> path;
  std::set<std::string> done;
  const std::function<void(const std::string&)> visit = [&](const std::string& unit) {
    if (done.contains(unit)) return;
    if (const auto begin = std::find(path.begin(), path.end(), unit); begin != path.end()) {
      std::string circle;
      for (auto step = begin; step != path.end(); ++step) circle += *step + " -> ";
      problems.push_back(circle + unit);
      return;
    }
    path.push_back(unit);
    for (const std::string& next : needs[unit]) visit(next);
    path.pop_back();
    done.insert(unit);
  };
  std::vector<std::string> units;
  for (const auto& [unit, next] : needs) units.push_back(unit);
  for (const std::string& unit : units) visit(unit);
  return problems;
}

std::vector<std::string> crowded_folders(const Includes& includes, int most) {
  std::map<std::string, int> files;
  for (const auto& [file, targets] : includes) ++files[folder_of(file)];
  std::vector<std::string> problems;
  for (const auto& [folder, count] : files) {
    if (count > most) problems.push_back(folder + " holds " + std::to_string(count) + " files of its own");
  }
  return problems;
}

}  // namespace ringtrain::testing
