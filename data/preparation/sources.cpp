#include "data/preparation/sources.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <unordered_set>
#include <utility>

#include "data/preparation/data_forms.h"
#include "data/preparation/text_stream.h"
#include "framework/counted.h"
#include "framework/storage/files.h"
#include "framework/storage/hash.h"
#include "framework/system/signals.h"

namespace ringtrain {

namespace {

struct Found {
  std::string path;
  bool named;    // by the user, so that a failure ends the run instead of being counted
  bool is_data;  // named, or in a data folder
};

/// Finds the regular files, each of them once.
class Walk {
 public:
  Walk(SourceList& list, const std::vector<std::string>& inputs) : list_(list) {
    for (const std::string& input : inputs) {
      roots_.push_back(real_path(input));
      struct stat status {};
      if (::stat(input.c_str(), &status) == 0) named_.emplace(status.st_dev, status.st_ino);
    }
  }

  void visit(const std::string& path, bool given) {
    throw_if_signalled();
    if (!given && (leads_out(path) || parse_unique_name(file_name(path), "partial"))) return;
    if (in_data_folder_ && !given && is_card_name(file_name(path))) {
      ++list_.cards;
      return;
    }
    struct stat status {};
    const bool there = ::stat(path.c_str(), &status) == 0;
    if (given && !there) fail(ExitCode::data, "cannot read the input {}: {}", path, std::strerror(errno));
    const bool folder = there && S_ISDIR(status.st_mode);
    // An input folder may lead to another input first.
    const bool named = given || (there && named_.contains({status.st_dev, status.st_ino}));
    if (!folder && !(there && S_ISREG(status.st_mode))) {
      if (given) fail(ExitCode::data, "the input {} is neither a file nor a folder", path);
      ++list_.special;  // or a dangling link
    } else if (!seen_.emplace(status.st_dev, status.st_ino).second) {
      return;  // reached before through another link
    } else if (folder) {
      const bool outer = std::exchange(in_data_folder_, named ? is_data_folder(path) : in_data_folder_);
      visit_folder(path, named);
      in_data_folder_ = outer;
    } else {
      found.push_back({path, named, named || in_data_folder_});
    }
  }

  std::vector<Found> found;

 private:
  /// Returns the path without links, "" if the target does not exist.
  static std::string real_path(const std::string& path) {
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(path, error);
    return error ? "" : real.string();
  }
  /// Returns whether path is a link to something outside all inputs, and counts it if so.
  bool leads_out(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return false;
    const std::string real = real_path(path);
    if (real.empty()) return false;  // dangling: visit() counts it
    const bool inside = std::ranges::any_of(roots_, [&](const std::string& root) {
      return !root.empty() && (real == root || root == "/" || real.starts_with(root + "/"));
    });
    if (!inside) ++list_.links;
    return !inside;
  }
  void visit_folder(const std::string& path, bool named) {
    std::vector<std::string> names;
    try {
      names = list_directory(path, ExitCode::data);
    } catch (const Error&) {
      if (named) throw;
      ++list_.unreadable;
    }
    for (const std::string& name : names)
      visit(fmt::format("{}{}{}", path, path.ends_with('/') ? "" : "/", name), false);
  }

  SourceList& list_;
  std::vector<std::string> roots_;
  std::set<std::pair<dev_t, ino_t>> named_, seen_;  // named: the inputs
  bool in_data_folder_ = false;                     // of the input folder that is being walked
};

/// Returns the inputs with patterns (*, ?, [) replaced by the paths that they match, sorted. An input that exists under
/// its literal name is not a pattern.
std::vector<std::string> expand_patterns(const std::vector<std::string>& inputs) {
  std::vector<std::string> paths;
  for (const std::string& input : inputs) {
    if (input.find_first_of("*?[") == std::string::npos || path_exists(input, ExitCode::data)) {
      paths.push_back(input);
      continue;
    }
    ::glob_t found{};
    const int result = ::glob(input.c_str(), 0, nullptr, &found);
    for (std::size_t i = 0; result == 0 && i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (result == GLOB_NOMATCH) fail(ExitCode::data, "nothing matches the input {}", input);
    if (result != 0) fail(ExitCode::data, "cannot expand the pattern {}", input);
  }
  return paths;
}

/// Returns the source at path, and sets *binary if it contains a NUL byte or has a form that is not text (its hash is
/// then unused). Compressed files are examined when they are read.
Source look_at(const std::string& path, bool* binary) {
  char slice[1 << 16];
  Source source{path, 0, "", false};
  const bool compressed = without_compression(path) != path;
  const File file = File::open(path, ExitCode::data);
  source.bytes = file.size();
  Hasher hasher;
  *binary = false;
  for (std::int64_t begin = 0; begin < source.bytes && !*binary;) {
    throw_if_signalled();
    const auto bytes = static_cast<std::size_t>(std::min<std::int64_t>(source.bytes - begin, sizeof slice));
    file.read_at(begin, slice, bytes);
    *binary = !compressed && (std::memchr(slice, 0, bytes) != nullptr || (begin == 0 && is_foreign({slice, bytes})));
    hasher.update(slice, bytes);
    begin += static_cast<std::int64_t>(bytes);
  }
  source.hash = hasher.digest();
  return source;
}

}  // namespace

SourceList find_sources(const std::vector<std::string>& given, const SourceProgress& progress) {
  SourceList list;
  const std::vector<std::string> inputs = expand_patterns(given);
  Walk walk(list, inputs);
  for (const std::string& input : inputs) walk.visit(input, true);

  std::unordered_set<std::string> contents;
  const auto all = static_cast<std::int64_t>(walk.found.size());
  std::int64_t files = 0, bytes = 0;
  for (const Found& found : walk.found) {
    const bool lines = found.is_data ? holds_json_lines(found.path) : is_json_lines(found.path);
    try {
      bool binary = false;
      Source source = look_at(found.path, &binary);
      bytes += source.bytes;
      if (source.bytes == 0) {
        ++list.empty;
      } else if (binary) {
        ++list.binary;
      } else if (!contents.insert(source.hash).second) {
        ++list.duplicates;
      } else {
        list.bytes += source.bytes;
        source.lines = lines;
        list.data_as_text += !lines && is_data_name(found.path);
        list.sources.push_back(std::move(source));
      }
    } catch (const Error& error) {
      if (found.named || error.code() != ExitCode::data) throw;
      ++list.unreadable;
    }
    if (progress) progress(++files, all, bytes);
  }
  if (list.sources.empty()) {
    fail(ExitCode::data,
         "the inputs hold no text: found {} binary, {} empty, and {} unreadable files, {}, and {} to outside the "
         "inputs; name files or folders of text with --input",
         list.binary, list.empty, list.unreadable, counted(list.special, "special file"), counted(list.links, "link"));
  }
  return list;
}

}  // namespace ringtrain
