#include "framework/output/output_folder.h"

#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is POSIX
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>

#include "framework/error.h"
#include "framework/text/text_reader.h"

namespace ringtrain {

namespace {

constexpr std::string_view partial_kind = "partial", content_name = "content", lock_name = "lock";
constexpr std::string_view mark = "ringtrain: this folder is not finished; the next writer removes it\n";

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

/// Returns whether this machine has no process with the number.
bool is_gone(std::string_view process) {
  const pid_t id = number_of<pid_t>(process).value_or(0);
  return id > 0 && ::kill(id, 0) != 0 && errno == ESRCH;
}

/// Removes a folder whose lock this process has. The lock is removed last, because it identifies the folder.
void remove_partial(const std::string& partial) {
  try {
    remove_tree(fmt::format("{}/{}", partial, content_name), ExitCode::usage);
    ::unlink(fmt::format("{}/{}", partial, lock_name).c_str());
    ::rmdir(partial.c_str());  // does nothing if somebody else has added files
  } catch (const Error&) {     // the next process removes it
  }
}

/// Requests a lock. A process that examines what a killed process left has the folder's lock for a moment.
LockState lock_state(File& lock, std::string_view process) {
  constexpr auto pause = std::chrono::milliseconds(5);
  constexpr int tries = 40;
  LockState state = lock.try_lock();
  for (int i = 0; i < tries && state == LockState::taken && is_gone(process); ++i) {
    std::this_thread::sleep_for(pause);
    state = lock.try_lock();
  }
  return state;
}

/// Returns whether a process is writing this temporary folder of an output. Removes it if the process was killed.
bool is_being_written(const std::string& partial, std::string_view process) {
  try {
    File lock = File::peek(fmt::format("{}/{}", partial, lock_name), ExitCode::usage);
    const LockState state = lock_state(lock, process);
    if (state != LockState::ours || !lock.is_at_path()) return state == LockState::taken;
    // A process that has created the lock and not yet acquired it has written nothing into it.
    const std::string content = lock.head(mark.size() + 1);
    if (content == mark || (content.empty() && is_gone(process))) remove_partial(partial);
  } catch (const Error&) {                           // just removed, not ours, or another user's
    if (is_gone(process)) ::rmdir(partial.c_str());  // only if it is empty
  }
  return false;
}

/// Throws if a process is making a folder for path. Removes the folders of killed processes.
void sweep_partials(const std::string& path, ExitCode code) {
  const std::string folder = parent_directory(path);
  if (!is_directory(folder)) return;
  for (const std::string& name : list_directory(folder, code)) {
    const std::optional<UniqueName> parts = parse_unique_name(name, partial_kind);
    if (!parts || parts->base != file_name(path)) continue;
    const std::string partial = fmt::format("{}/{}", folder, name);
    struct stat status {};
    if (::lstat(partial.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) continue;
    if (!is_being_written(partial, parts->process)) continue;
    fail(code, "{}: process {} is writing it now ({} is locked); wait until it has ended, or choose another path", path,
         parts->process, partial);
  }
}

/// Creates the lock of a new folder. Another process that examines the folder may have the lock for a moment.
File make_lock(const std::string& partial, ExitCode code) {
  constexpr auto pause = std::chrono::milliseconds(1);
  constexpr int tries = 1000;
  File lock = File::create(fmt::format("{}/{}", partial, lock_name), code);
  for (int i = 0; i < tries && lock.try_lock() == LockState::taken; ++i) std::this_thread::sleep_for(pause);
  lock.write(mark);
  return lock;
}

}  // namespace

void check_output_folder(const std::string& path, ExitCode code) {
  if (path.empty()) fail(code, "the path of the folder to make is empty; name one with --output");
  const std::string clean = without_slashes(path);
  sweep_partials(clean, code);
  if (path_exists(clean, code)) {
    fail(code, "{}: already exists and is never overwritten; choose another path", clean);
  }
  check_writable(nearest_existing(parent_directory(clean)), code);
}

OutputFolder::OutputFolder(const std::string& path, ExitCode code)
    : path_(without_slashes(path)),
      partial_(unique_name(path_, partial_kind)),
      content_(fmt::format("{}/{}", partial_, content_name)),
      code_(code),
      unfinished_(partial_) {
  check_output_folder(path_, code_);
  make_directories(parent_directory(path_), code_);
  make_directories(partial_, code_);
  try {
    lock_ = make_lock(partial_, code_);
    make_directories(content_, code_);
  } catch (...) {
    remove_partial(partial_);
    throw;
  }
}

OutputFolder::~OutputFolder() {
  if (!published_) remove_partial(partial_);
}

void OutputFolder::require_room(std::int64_t bytes, std::int64_t largest) const {
  require_free_bytes(path_, bytes, code_);
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || static_cast<rlim_t>(largest) <= limit.rlim_cur) return;
  fail(code_, "cannot write {}: its largest file needs {} bytes, but ulimit -f allows {} per file; raise that limit",
       path_, largest, limit.rlim_cur);
}

void OutputFolder::publish() {
  sync_directory(content_, code_);
  rename_to_new(content_, path_, code_);
  published_ = true;
  remove_partial(partial_);
}

}  // namespace ringtrain
