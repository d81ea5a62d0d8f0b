#include "data/sources.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_set>
#include <utility>

#include "framework/files.h"
#include "framework/hash.h"

namespace ringtrain {

namespace {

class Walk {
 public:
  explicit Walk(const SourceProgress& progress) : progress_(progress) {}

  /// Visits what stands at `path`. `given`: the user named it, so a failure ends the run instead of being counted.
  void visit(const std::string& path, bool given) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      if (given) fail(ExitCode::data, "cannot read the input {}: {}", path, std::strerror(errno));
      ++list.special;  // a link that leads nowhere
      return;
    }
    const bool folder = S_ISDIR(status.st_mode);
    if (!folder && !S_ISREG(status.st_mode)) {
      if (given) fail(ExitCode::data, "the input {} is neither a file nor a folder", path);
      ++list.special;
      return;
    }
    if (!seen_.emplace(status.st_dev, status.st_ino).second) return;  // reached before, by another link
    try {
      folder ? visit_folder(path) : visit_file(path);
    } catch (const Error&) {
      if (given) throw;
      ++list.unreadable;
    }
  }

  SourceList list;

 private:
  void visit_folder(const std::string& path) {
    for (const std::string& name : list_directory(path, ExitCode::data)) {
      visit(path.ends_with('/') ? path + name : path + "/" + name, false);
    }
  }

  void visit_file(const std::string& path) {
    Source source{path, 0, ""};
    const File file = File::open(path, ExitCode::data);
    source.bytes = file.size();
    Hasher hasher;
    bool binary = false;
    for (std::int64_t begin = 0; begin < source.bytes && !binary;) {
      const auto bytes = static_cast<std::size_t>(std::min<std::int64_t>(source.bytes - begin, sizeof slice_));
      file.read_at(begin, slice_, bytes);
      binary = std::memchr(slice_, 0, bytes) != nullptr;
      hasher.update(slice_, bytes);
      begin += static_cast<std::int64_t>(bytes);
    }
    bytes_ += source.bytes;
    if (progress_ && ++files_ % 64 == 0) progress_(files_, bytes_);
    source.hash = hasher.digest();
    if (source.bytes == 0) {
      ++list.empty;
    } else if (binary) {
      ++list.binary;
    } else if (!contents_.insert(source.hash).second) {
      ++list.duplicates;
    } else {
      list.bytes += source.bytes;
      list.sources.push_back(std::move(source));
    }
  }

  const SourceProgress& progress_;
  std::set<std::pair<dev_t, ino_t>> seen_;
  std::unordered_set<std::string> contents_;
  std::int64_t files_ = 0, bytes_ = 0;
  char slice_[1 << 16];
};

}  // namespace

SourceList find_sources(const std::vector<std::string>& inputs, const SourceProgress& progress) {
  const auto walk = std::make_unique<Walk>(progress);
  for (const std::string& input : inputs) walk->visit(input, true);
  SourceList& list = walk->list;
  if (list.sources.empty()) {
    fail(ExitCode::data,
         "the inputs hold no text: {} binary, {} empty, {} unreadable and {} special files; name files or folders of "
         "text with --input",
         list.binary, list.empty, list.unreadable, list.special);
  }
  return std::move(list);
}

}  // namespace ringtrain
