#include "framework/output/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

namespace ringtrain {

namespace {

constexpr const char* unfinished_kind = "partial";

/// Keeps other processes from claiming an output in a folder while this one does. A process that cannot get the lock
/// for a long time continues without it: a script that runs this process may have locked the folder.
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

/// Throws if a process is writing a temporary file for path. Removes those of killed processes if `sweep`.
void check_partials(const std::string& path, bool sweep, ExitCode code) {
  const std::string folder = parent_directory(path), base = file_name(path);
  for (const std::string& name : list_directory(folder, code)) {
    const std::optional<UniqueName> parts = parse_unique_name(name, unfinished_kind);
    const std::string found = fmt::format("{}/{}", folder, name);
    if (!parts || parts->base != base) continue;
    LockState state = LockState::unknown;
    try {
      File other = File::peek(found, code);
      state = other.try_lock();
      if (state == LockState::ours && sweep) ::unlink(found.c_str());
    } catch (const Error&) {  // it was just removed, or belongs to another user
    }
    if (state == LockState::taken) {
      fail(code, "{}: process {} is writing it now ({} is locked); wait until it has ended, or choose another path",
           path, parts->process, found);
    }
  }
}

}  // namespace

OutputMark OutputMark::begins(std::string_view head) {
  constexpr std::size_t shortest = 16;
  ensure(head.size() >= shortest, "a mark is long enough to be nobody else's");
  return OutputMark(std::string(head));
}

OutputMark OutputMark::json(std::string_view writer) {
  return begins(marked_json(writer, "{"));
}

std::string marked_json(std::string_view writer, const std::string& object) {
  ensure(object.starts_with('{') && object != "{}", "what is marked is an object with members");
  return fmt::format("{{\n  \"written_by\": \"{}\",{}", writer, std::string_view(object).substr(1));
}

OutputInputs OutputInputs::from(std::function<std::vector<std::string>()> files) {
  ensure(files != nullptr, "inputs are listed, or there are none for a reason");
  return OutputInputs(std::move(files));
}

OutputInputs OutputInputs::none(const char* reason) {
  ensure(!std::string_view(reason).empty(), "that there are no inputs has a reason");
  return OutputInputs(nullptr);
}

OutputRules::OutputRules(OutputKind kind, OutputMark mark, OutputInputs inputs)
    : kind_(std::move(kind)), mark_(std::move(mark)), inputs_(std::move(inputs)) {}

void OutputRules::check(const std::string& path, ExitCode code) const {
  if (path.empty()) fail(code, "{} is empty; it must name {}", kind_.flag, kind_.name);
  if (path.ends_with('/')) fail(code, "{}: ends in / like a folder, but must name {}", path, kind_.name);
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  require_regular_or_absent(path, code);
  const std::string remedy = "remove it first, or choose another " + kind_.flag;
  if (mark_.head().empty()) fail(code, "{} exists; it is never overwritten: {}", path, remedy);
  for (const std::string& input : inputs_.files()) {
    if (is_same_file(status, input)) fail(code, "{}: is {}, which this run uses; choose another path", path, input);
  }
  if (used_by_this_process(path)) fail(code, "{}: is a file that this run uses; choose another path", path);
  if (!begins_with(path, mark_.head(), code)) {
    fail(code, "{}: exists and is not {}, judging by its first bytes; {}", path, kind_.name, remedy);
  }
}

void OutputRules::require_mark(const std::string& path, ExitCode code, ExitCode unmarked) const {
  if (begins_with(path, mark_.head(), code)) return;
  fail(unmarked, "{}: is not {}, judging by its first bytes", path, kind_.name);
}

std::string read_previous_output(const std::string& path, const OutputRules& rules, ExitCode code) {
  rules.require_mark(path, code, code);
  return File::peek(path, code).content(INT64_MAX);
}

void check_output(const std::string& path, const OutputRules& rules, ExitCode code) {
  rules.check(path, code);
  const std::string folder = parent_directory(path);
  check_writable(nearest_existing(folder), code);
  path_exists(unique_name(path, unfinished_kind), code);  // throws if the temporary name is too long
  if (!is_directory(folder)) return;
  const FolderLock lock(folder);
  check_partials(path, false, code);
}

OutputFile::OutputFile(const std::string& path, OutputRules rules, ExitCode code)
    : path_(path), rules_(std::move(rules)), code_(code) {
  rules_.check(path_, code_);
  check_writable(parent_directory(path_), code_);
  const FolderLock lock(parent_directory(path_));
  check_partials(path_, true, code_);
  partial_ = unique_name(path_, unfinished_kind);
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
  rules_.check(path_, code_);
}

void OutputFile::publish() {
  check();
  if (!file_.is_at_path()) {
    fail(code_, "{}: its temporary file {} was deleted: was its folder removed or replaced? Nothing was written", path_,
         partial_);
  }
  rules_.require_mark(partial_, code_, ExitCode::internal);
  const bool replaces = path_exists(path_, code_);  // a file that appears there later is detected
  file_.sync();
  (replaces ? rename_path : rename_to_new)(partial_, path_, code_);
  published_ = true;
  file_.close();
}

}  // namespace ringtrain
