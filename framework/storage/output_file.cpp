#include "framework/storage/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

namespace ringtrain {

namespace {

constexpr const char* partial_kind = "partial";

/// Keeps others from claiming an output in a folder, for the moment that a claim takes. Who cannot have it for long
/// goes on without: the folder may be locked by a script around this very process.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    constexpr auto pause = std::chrono::milliseconds(5);
    constexpr int patience = 400;
    for (int i = 0; i < patience && descriptor_ >= 0; ++i) {
      if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
      std::this_thread::sleep_for(pause);
    }
  }
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

bool is_same_file(const struct stat& a, const std::string& path) {
  struct stat b {};
  return ::stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// Throws if the rules keep an output from path.
void check_target(const std::string& path, const OutputRules& rules, ExitCode code) {
  if (path.empty()) fail(code, "the path of {} is empty", rules.kind);
  if (path.ends_with('/')) fail(code, "{}: is a folder; {} is a file", path, rules.kind);
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  require_regular_or_absent(path, code);
  for (const std::string& input : rules.inputs ? rules.inputs() : std::vector<std::string>{}) {
    if (is_same_file(status, input)) fail(code, "{}: is {}, which this run uses; choose another path", path, input);
  }
  if (rules.overwrite) return;
  if (!rules.is_former) fail(code, "{} exists; it is never overwritten: remove it first, or {}", path, rules.remedy);
  if (!rules.is_former(path)) fail(code, "{}: exists and is not {}; {}", path, rules.kind, rules.remedy);
}

/// Throws if a process has a file half-written for path. Removes those of killed processes if `sweep`.
void check_partials(const std::string& path, bool sweep, ExitCode code) {
  const std::string folder = parent_directory(path), base = file_name(path);
  for (const std::string& name : list_directory(folder, code)) {
    const std::optional<UniqueName> parts = parse_unique_name(name, partial_kind);
    const std::string found = fmt::format("{}/{}", folder, name);
    if (!parts || parts->base != base) continue;
    LockState state = LockState::unknown;
    try {
      File other = File::open(found, code);
      state = other.try_lock();
      if (state == LockState::ours && sweep) ::unlink(found.c_str());
    } catch (const Error&) {  // it has just gone, or belongs to somebody else
    }
    if (state == LockState::taken) {
      fail(code, "{}: process {} is writing it now ({} is locked); wait until it has ended, or choose another path",
           path, parts->process, found);
    }
  }
}

}  // namespace

void check_output(const std::string& path, const OutputRules& rules, ExitCode code) {
  check_target(path, rules, code);
  const std::string folder = parent_directory(path);
  check_writable(nearest_existing(folder), code);
  if (!is_directory(folder)) return;
  const FolderLock lock(folder);
  check_partials(path, false, code);
}

OutputFile::OutputFile(const std::string& path, OutputRules rules, ExitCode code)
    : path_(path), rules_(std::move(rules)), code_(code) {
  check_target(path_, rules_, code_);
  check_writable(parent_directory(path_), code_);
  const FolderLock lock(parent_directory(path_));
  check_partials(path_, true, code_);
  partial_ = unique_name(path_, partial_kind);
  unfinished_.emplace(partial_);
  file_ = File::create(partial_, code_);
  try {
    file_.try_lock();
  } catch (...) {
    ::unlink(partial_.c_str());
    throw;
  }
}

OutputFile::~OutputFile() {
  if (!published_) ::unlink(partial_.c_str());
}

void OutputFile::check() const {
  check_target(path_, rules_, code_);
}

void OutputFile::publish() {
  check();
  file_.sync();
  if (rules_.overwrite || rules_.is_former) {
    rename_path(partial_, path_, code_);
  } else {
    rename_to_new(partial_, path_, code_);
  }
  published_ = true;
  file_.close();
}

}  // namespace ringtrain
