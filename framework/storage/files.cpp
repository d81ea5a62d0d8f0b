// Linux implementation of framework/storage/files.h. Interrupted calls are repeated, and short reads and writes are
// continued.
#include "framework/storage/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include "framework/process/unfinished.h"

namespace ringtrain {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view no_room =
    "cannot write {}: {}: it needs {} bytes, but {} are free; free some space or choose another folder";
constexpr std::string_view probe_prefix = ".writable-", probe_pattern = "XXXXXX";

std::string text_of(int error) {
  return std::generic_category().message(error);
}

/// Returns what a file is if it is not regular, for a sentence.
std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a link";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/// The files that this process has used, by device and inode, because names may change.
class UsedFiles {
 public:
  void add(const struct stat& status) {
    const std::lock_guard guard(mutex_);
    files_.emplace(status.st_dev, status.st_ino);
  }
  void forget(const struct stat& status) {
    const std::lock_guard guard(mutex_);
    files_.erase({status.st_dev, status.st_ino});
  }
  bool holds(const struct stat& status) {
    const std::lock_guard guard(mutex_);
    return files_.contains({status.st_dev, status.st_ino});
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<dev_t, ino_t>> files_;
};

UsedFiles& used_files() {
  static UsedFiles instance;
  return instance;
}

/// Returns the program that a process runs, "" if it is not visible: the process has ended or is another user's.
std::string program_of(const std::string& process) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/" + process + "/exe", error);
  return error ? "" : program.string();
}

}  // namespace

// ---- File ----------------------------------------------------------------------------------------------------------

File::File(const std::string& path, ExitCode code, int flags, const char* what, Use use) : path_(path), code_(code) {
  struct stat status {};
  const bool follows = (flags & O_NOFOLLOW) == 0;
  const auto refuse_special = [&] {
    if (S_ISREG(status.st_mode)) return;
    if (S_ISLNK(status.st_mode)) {
      fail(code, "cannot {} {}: it is a link, and nothing is written through one; name the file itself", what, path);
    }
    fail(code, "cannot {} {}: it is {}, not a file", what, path, kind_of(status.st_mode));
  };
  // Check before opening: opening a device may trigger something, and opening a FIFO may wait forever.
  if ((follows ? ::stat(path.c_str(), &status) : ::lstat(path.c_str(), &status)) == 0 && (flags & O_EXCL) == 0) {
    refuse_special();
  }
  descriptor_ = TEMP_FAILURE_RETRY(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666));
  if (descriptor_ < 0) fail(code, "cannot {} {}: {}", what, path, text_of(errno));
  if (::fstat(descriptor_, &status) == 0 && !S_ISREG(status.st_mode)) {
    ::close(std::exchange(descriptor_, -1));
    refuse_special();
  }
  if (use == Use::counts) used_files().add(status);
  if ((flags & O_EXCL) != 0) used_files().forget(status);  // a new file may reuse the inode of a removed one
}

File File::open(const std::string& path, ExitCode code) {
  return File(path, code, O_RDONLY, "open");
}
File File::peek(const std::string& path, ExitCode code) {
  return File(path, code, O_RDONLY, "open", Use::none);
}
File File::open_for_update(const std::string& path, ExitCode code) {
  return File(path, code, O_RDWR | O_NOFOLLOW, "open for writing");
}
File File::create(const std::string& path, ExitCode code) {
  return File(path, code, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, "create", Use::none);
}
File File::open_or_create(const std::string& path, ExitCode code) {
  return File(path, code, O_RDWR | O_CREAT | O_NOFOLLOW, "open for writing");
}
File File::append_to(const std::string& path, ExitCode code) {
  return File(path, code, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, "open for appending");
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), code_(other.code_), descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);  // the other object closes the file that was open here
  std::swap(code_, other.code_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileStamp File::stamp() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail(code_, "cannot get the status of {}: {}", path_, text_of(errno));
  const auto nanoseconds = [](const struct timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_nsec};
  };
  return {status.st_dev,
          status.st_ino,
          status.st_nlink,
          status.st_size,
          std::int64_t{status.st_blocks} * 512,  // in these units on every file system
          nanoseconds(status.st_mtim),
          nanoseconds(status.st_ctim)};
}

std::size_t File::read_some(std::int64_t offset, void* data, std::size_t bytes) const {
  std::size_t done = 0;
  while (done < bytes) {
    const auto count = TEMP_FAILURE_RETRY(
        ::pread(descriptor_, static_cast<char*>(data) + done, bytes - done, offset + static_cast<std::int64_t>(done)));
    if (count < 0) fail(code_, "cannot read {} bytes at byte {} of {}: {}", bytes, offset, path_, text_of(errno));
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void File::read_at(std::int64_t offset, void* data, std::size_t bytes) const {
  const std::size_t done = read_some(offset, data, bytes);
  if (done == bytes) return;
  fail(code_, "{} ends at byte {} where {} bytes were to be read from byte {}: it was cut short", path_,
       offset + static_cast<std::int64_t>(done), bytes, offset);
}

std::string File::head(std::size_t bytes) const {
  std::string text(bytes, '\0');
  text.resize(read_some(0, text.data(), bytes));
  return text;
}

std::string File::content(std::int64_t max_bytes) const {
  const std::int64_t bytes = size();
  if (bytes > max_bytes) fail(code_, "{} has {} bytes, but may have at most {}", path_, bytes, max_bytes);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  read_at(0, text.data(), text.size());
  return text;
}

void File::prefetch(std::int64_t offset, std::int64_t bytes) const {
  ::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED);
}

void File::fail_write(int error, std::size_t bytes, std::size_t done) const {
  rlimit largest{};
  if (error == EFBIG && ::getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur != RLIM_INFINITY) {
    fail(code_, "cannot write {} bytes to {}: {} after {} of them: ulimit -f allows {} per file; raise that limit",
         bytes, path_, text_of(error), done, largest.rlim_cur);
  }
  if (error != ENOSPC && error != EDQUOT) {
    fail(code_, "cannot write {} bytes to {}: {} (after {} bytes)", bytes, path_, text_of(error), done);
  }
  struct statvfs status {};
  const std::uint64_t free = ::fstatvfs(descriptor_, &status) == 0 ? status.f_bavail * status.f_frsize : 0;
  fail(code_, no_room, path_, text_of(error), bytes - done, free);
}

void File::write_at(std::int64_t offset, const void* data, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const auto count = TEMP_FAILURE_RETRY(::pwrite(descriptor_, static_cast<const char*>(data) + done, bytes - done,
                                                   offset + static_cast<std::int64_t>(done)));
    if (count < 0) fail_write(errno, bytes, done);
    done += static_cast<std::size_t>(count);
  }
}

void File::write(std::string_view text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const auto count = TEMP_FAILURE_RETRY(::write(descriptor_, text.data() + done, text.size() - done));
    if (count < 0) fail_write(errno, text.size(), done);
    done += static_cast<std::size_t>(count);
  }
}

void File::reserve(std::int64_t bytes) {
  const FileStamp now = stamp();
  const std::int64_t held = std::min(now.bytes, now.allocated);
  if (bytes <= held) return;
  // A request that cannot fit would take all free space from everybody before it fails, so it is not made.
  require_free_bytes(path_, bytes - held, code_);
  // If a file system has no reservations, continue: a full disk is then detected when writing.
  if (TEMP_FAILURE_RETRY(::fallocate(descriptor_, 0, 0, bytes)) == 0) return;
  const int error = errno;
  if (error != EOPNOTSUPP && error != ENOSYS) fail_write(error, static_cast<std::size_t>(bytes), 0);
  truncate(std::max(bytes, now.bytes));
}

void File::truncate(std::int64_t bytes) {
  if (TEMP_FAILURE_RETRY(::ftruncate(descriptor_, bytes)) != 0) {
    fail(code_, "cannot set the size of {} to {} bytes: {}", path_, bytes, text_of(errno));
  }
}

void File::sync() {
  if (TEMP_FAILURE_RETRY(::fsync(descriptor_)) != 0) {
    if (errno == ENOSPC || errno == EDQUOT) fail_write(errno, static_cast<std::size_t>(size()), 0);
    fail(code_, "cannot flush {} to the disk: {}", path_, text_of(errno));
  }
}

void File::close() {
  if (descriptor_ < 0) return;
  // Linux frees the descriptor even if it reports an interruption, so the call is never repeated.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) {
    fail(code_, "cannot close {}: {}", path_, text_of(errno));
  }
}

LockState File::try_lock() {
  if (TEMP_FAILURE_RETRY(::flock(descriptor_, LOCK_EX | LOCK_NB)) == 0) return LockState::ours;
  if (errno == EWOULDBLOCK) return LockState::taken;
  // EBADF: NFS locks only files that are open for writing.
  if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL || errno == EBADF) {
    return LockState::unknown;
  }
  fail(code_, "cannot lock {}: {}", path_, text_of(errno));
}

bool File::try_share() {
  return TEMP_FAILURE_RETRY(::flock(descriptor_, LOCK_SH | LOCK_NB)) == 0 || errno != EWOULDBLOCK;
}

bool File::is_at_path() const {
  struct stat opened {
  }, there{};
  return ::fstat(descriptor_, &opened) == 0 && ::stat(path_.c_str(), &there) == 0 && opened.st_dev == there.st_dev &&
         opened.st_ino == there.st_ino;
}

FileLock FileLock::acquire(const std::string& path, const std::string& what, ExitCode code) {
  constexpr std::size_t longest = 64;
  FileLock lock;
  lock.file_ = File::open_or_create(path, code);
  std::string holder = lock.file_.head(longest + 2);  // empty or cut short while its process writes it
  if (holder.ends_with('\n')) holder.pop_back();
  if (holder.size() > longest || holder.find_first_not_of("0123456789") != std::string::npos) {
    fail(code, "{}: is not a lock file of this program, and would be overwritten with a process id; move it away",
         path);
  }
  const LockState state = lock.file_.try_lock();
  if (state == LockState::taken) {
    fail(code, "{} process {} ({} is locked); wait until it has ended", what, holder.empty() ? "?" : holder, path);
  }
  lock.exclusive_ = state == LockState::ours;
  const std::string own_process = std::to_string(::getpid());
  if (!lock.exclusive_ && !holder.empty() && holder != own_process && !program_of(holder).empty() &&
      program_of(holder) == program_of("self")) {
    fail(code,
         "{} process {}, according to {}: this file system has no locks, but that process is running this program; "
         "wait until the process ends, or remove that file if the process has nothing to do with this folder",
         what, holder, path);
  }
  const std::string content = own_process + "\n";
  lock.file_.truncate(0);
  lock.file_.write_at(0, content.data(), content.size());
  return lock;
}

// ---- Paths ---------------------------------------------------------------------------------------------------------

std::string unique_name(const std::string& path, std::string_view kind) {
  static std::atomic<std::uint32_t> next{std::random_device{}()};
  constexpr std::uint32_t odd_step = 0x9e3779b9;  // visits all 2^32 values before one repeats
  return fmt::format("{}.{}-{}-{:08x}", path, kind, ::getpid(), next.fetch_add(odd_step));
}

std::optional<UniqueName> parse_unique_name(std::string_view name, std::string_view kind) {
  constexpr std::size_t random_digits = 8;
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || name.size() - dash - 1 != random_digits) return std::nullopt;
  if (name.find_first_not_of("0123456789abcdef", dash + 1) != std::string_view::npos) return std::nullopt;
  const std::string marker = fmt::format(".{}-", kind);
  const std::size_t at = name.substr(0, dash).rfind(marker);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const std::string_view process = name.substr(at + marker.size(), dash - at - marker.size());
  if (process.empty() || process.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return UniqueName{name.substr(0, at), process};
}

bool path_exists(const std::string& path, ExitCode code) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) fail(code, "cannot determine whether {} exists: {}", path, text_of(errno));
  return false;
}

std::string hub_hint(const std::string& path) {
  const std::size_t slash = path.find('/');
  const bool is_name = slash != path.npos && slash > 0 && slash + 1 < path.size() && path[0] != '.' &&
                       path.find('/', slash + 1) == path.npos && !path_exists(path.substr(0, slash));
  return is_name ? fmt::format("; to download this model from the Hugging Face hub: hf download {} --local-dir {}",
                               path, path.substr(slash + 1))
                 : "";
}

bool is_directory(const std::string& path, ExitCode code) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return S_ISDIR(status.st_mode);
  if (errno != ENOENT && errno != ENOTDIR)
    fail(code, "cannot determine whether {} is a folder: {}", path, text_of(errno));
  return false;
}

std::string parent_directory(const std::string& path) {
  const fs::path clean = fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path();
  const std::string parent = clean.parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string whole_path(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).string();
}

std::string file_name(const std::string& path) {
  const fs::path whole(path);
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

std::int64_t file_size(const std::string& path, ExitCode code) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail(code, "cannot read {}: {}", path, text_of(errno));
  return status.st_size;
}

std::int64_t free_bytes(const std::string& path, ExitCode code) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) {
    fail(code, "cannot determine the free space at {}: {}", path, text_of(errno));
  }
  if (status.f_blocks == 0) return INT64_MAX;  // ramfs, tmpfs without a size, and some of FUSE
  return static_cast<std::int64_t>(status.f_bavail * status.f_frsize);
}

void require_free_bytes(const std::string& path, std::int64_t bytes, ExitCode code) {
  const std::int64_t free = free_bytes(parent_directory(path), code);
  if (bytes > free) fail(code, no_room, path, text_of(ENOSPC), bytes, free);
}

bool used_by_this_process(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && used_files().holds(status);
}

bool begins_with(const std::string& path, std::string_view head, ExitCode code) {
  return File::peek(path, code).head(head.size()) == head;
}

std::string read_file(const std::string& path, ExitCode code, std::int64_t max_bytes) {
  return File::open(path, code).content(max_bytes);
}

void require_regular_or_absent(const std::string& path, ExitCode code) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  fail(code, "cannot write {}: it is {}, which is never replaced; name a file", path, kind_of(status.st_mode));
}

void write_file(const std::string& path, std::string_view content, ExitCode code) {
  require_regular_or_absent(path, code);
  const std::string partial = unique_name(path, "partial");
  const Unfinished unfinished(partial);
  File file = File::create(partial, code);
  try {
    file.write(content);
    file.sync();
    file.close();
    rename_path(partial, path, code);
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
}

void write_new_file(const std::string& path, std::string_view content, ExitCode code) {
  File file = File::create(path, code);
  file.write(content);
  file.sync();
  file.close();
}

void rename_path(const std::string& from, const std::string& to, ExitCode code) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(code, "cannot rename {} to {}: {}", from, to, text_of(errno));
  sync_directory(parent_directory(to), code);
}

bool link_file(const std::string& from, const std::string& to) {
  return ::link(from.c_str(), to.c_str()) == 0;
}

void rename_to_new(const std::string& from, const std::string& to, ExitCode code) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) fail(code, "cannot rename {} to {}: {}", from, to, text_of(errno));
    if (path_exists(to)) fail(code, "cannot rename {} to {}: {}", from, to, text_of(EEXIST));
    return rename_path(from, to, code);
  }
  sync_directory(parent_directory(to), code);
}

void sync_directory(const std::string& path, ExitCode code) {
  const int descriptor = TEMP_FAILURE_RETRY(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor < 0) fail(code, "cannot open the folder {}: {}", path, text_of(errno));
  const int result = TEMP_FAILURE_RETRY(::fsync(descriptor));
  const int error = errno;
  ::close(descriptor);
  // Some network file systems cannot sync a folder and report EINVAL; their renames are durable anyway.
  if (result != 0 && error != EINVAL) fail(code, "cannot flush the folder {} to the disk: {}", path, text_of(error));
}

void make_directories(const std::string& path, ExitCode code) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail(code, "cannot make the folder {}: {}", path, error.message());
  if (!is_directory(path)) fail(code, "cannot create the folder {}: a file has that name", path);
}

std::string make_unique_directory(const std::string& path, std::string_view kind, ExitCode code) {
  std::string made = unique_name(path, kind);
  if (::mkdir(made.c_str(), 0777) != 0) fail(code, "cannot make the folder {}: {}", made, text_of(errno));
  return made;
}

std::string nearest_existing(const std::string& path) {
  std::string at = path;
  while (!path_exists(at) && at != parent_directory(at)) at = parent_directory(at);
  return at;
}

void check_writable(const std::string& directory, ExitCode code) {
  if (!path_exists(directory)) fail(code, "the folder {} does not exist; make it first", directory);
  if (!is_directory(directory)) fail(code, "{} is not a folder", directory);
  // Only creating a file is reliable: access() ignores read-only mounts for root, quotas, and full disks.
  std::string probe = fmt::format("{}/{}{}", directory, probe_prefix, probe_pattern);
  const int descriptor = ::mkstemp(probe.data());
  if (descriptor < 0) {
    fail(code, "cannot write into the folder {}: {}; choose another one or change its permissions", directory,
         text_of(errno));
  }
  ::close(descriptor);
  ::unlink(probe.c_str());
}

bool is_probe(const std::string& name) {
  return name.starts_with(probe_prefix) && name.size() == probe_prefix.size() + probe_pattern.size();
}

std::vector<std::string> list_directory(const std::string& path, ExitCode code) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) fail(code, "cannot list the folder {}: {}", path, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

void remove_tree(const std::string& path, ExitCode code) {
  // The system may give a free inode to the next file, which is then not an input.
  const auto forget = [](const fs::path& file) {
    struct stat status {};
    if (::lstat(file.c_str(), &status) != 0) return false;
    if (S_ISREG(status.st_mode) && status.st_nlink == 1) used_files().forget(status);
    return S_ISDIR(status.st_mode);
  };
  std::error_code error;
  if (forget(path)) {
    for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
      forget(entry->path());
    }
  }
  fs::remove_all(path, error);
  if (error) fail(code, "cannot remove {}: {}", path, error.message());
}

}  // namespace ringtrain
