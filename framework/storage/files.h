// The operating system's files, wrapped once. Every failure is an Error with the caller's exit code and one sentence
// that names the path, the system's own text and the bytes at fault; a full disk says how many bytes it needed. Nothing
// here knows a format. Thread-safe but for one File used by two threads (pread alone may be shared).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/error.h"

namespace ringtrain {

/// What came of asking for a file's lock.
enum class LockState {
  ours,    // until the file closes, or this process ends
  taken,   // by another opening of the file, here or elsewhere
  unknown  // this file system has no locks
};

/// What the system says of an open file besides its content. If two are equal, the file was most likely not written to
/// in between; time stamps are as fine as the file system's clock, a few milliseconds. A hard link that is made or
/// removed changes ctime and no content: where the number of links differs, ctime is not compared. A file without any
/// link has been replaced or removed.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, links = 0;
  std::int64_t bytes = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;  // mtime and ctime
  friend bool operator==(const FileStamp& one, const FileStamp& other) {
    return one.device == other.device && one.inode == other.inode && one.bytes == other.bytes &&
           one.modified_ns == other.modified_ns &&
           (one.changed_ns == other.changed_ns || (one.links != other.links && one.links > 0 && other.links > 0));
  }
};

/// An open regular file; movable, closed at the end. Anything else (a folder, a FIFO, a device, a socket) is refused at
/// once. Only open() and peek() follow a link in the last component: nothing is written through one. What all but
/// peek() and create() open counts as used by this process: see used_by_this_process().
class File {
 public:
  File() = default;
  /// Opens an existing regular file to read it.
  static File open(const std::string& path, ExitCode code);
  /// The same for a look that makes the file no input: at a former output, at what another process is writing.
  static File peek(const std::string& path, ExitCode code);
  /// Opens an existing regular file to read and write it in place.
  static File open_for_update(const std::string& path, ExitCode code);
  /// Creates a file that must not exist yet.
  static File create(const std::string& path, ExitCode code);
  /// Opens a file to append to it; made if missing.
  static File append_to(const std::string& path, ExitCode code);
  /// Opens a file to read and write it in place; made if missing.
  static File open_or_create(const std::string& path, ExitCode code);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  bool is_open() const { return descriptor_ >= 0; }
  std::int64_t size() const { return stamp().bytes; }
  FileStamp stamp() const;
  /// Reads exactly `bytes` bytes from `offset`; an end of file before that is an Error.
  void read_at(std::int64_t offset, void* data, std::size_t bytes) const;
  /// Reads the whole content; an Error if it is longer than max_bytes.
  std::string content(std::int64_t max_bytes) const;
  /// Asks the system to have these bytes in memory soon, and waits for nothing. Never an Error: it is a hint.
  void prefetch(std::int64_t offset, std::int64_t bytes) const;
  void write_at(std::int64_t offset, const void* data, std::size_t bytes);
  /// Writes at the file's own position: its end after append_to.
  void write(std::string_view text);
  /// Gives the file `bytes` bytes and reserves them on the disk, so that a full disk shows now and not later.
  void reserve(std::int64_t bytes);
  void truncate(std::int64_t bytes);
  /// Asks for the file's lock without waiting: of all that have opened the file, one can have it.
  LockState try_lock();
  /// Holds the file together with others who do so, until it closes: meanwhile nobody's try_lock() gets it. Returns
  /// false if somebody has it locked. Never an Error: where there are no locks, nobody holds anything.
  bool try_share();
  /// Returns whether its path still leads to this very file: it was not renamed, replaced or removed.
  bool is_at_path() const;
  /// Returns when content and size have reached the disk.
  void sync();
  /// Closes and reports what the system then finds; the destructor cannot.
  void close();

 private:
  enum class Use { none, counts };
  File(const std::string& path, ExitCode code, int flags, const char* what, Use use = Use::counts);
  [[noreturn]] void fail_write(int error, std::size_t bytes, std::size_t done) const;

  std::string path_;
  ExitCode code_ = ExitCode::internal;
  int descriptor_ = -1;
};

/// Keeps other processes out: a lock on a file, held until it goes, also when the process dies. The file stays, with
/// the number of the process that had it last. A file system without locks keeps out what can be seen: a process of
/// that number that lives on this machine and is this very program.
class FileLock {
 public:
  FileLock() = default;
  /// Throws Error(code) that begins with `what` and names the process if another one (or another FileLock of this one)
  /// holds it. Throws Error(code) and changes nothing if the file holds anything but the number of a process.
  static FileLock acquire(const std::string& path, const std::string& what, ExitCode code);
  /// Returns false where the file system has no locks: then others may hold it, too, which a person should be told.
  bool is_exclusive() const { return exclusive_; }

 private:
  File file_;
  bool exclusive_ = true;
};

/// Returns PATH.KIND-PROCESS-RANDOM, with the number of this process and 8 hexadecimal digits: a name that nobody else
/// uses, for what has no name of its own yet, or not any more.
std::string unique_name(const std::string& path, std::string_view kind);
/// The parts of a name that unique_name() gave: views of it.
struct UniqueName {
  std::string_view base;  // what the path's last component was
  std::string_view process;
};
/// Returns the parts of a last component that unique_name() gave with this kind; nothing of any other name.
std::optional<UniqueName> parse_unique_name(std::string_view name, std::string_view kind);

/// Returns whether something stands there, be it a link that leads nowhere. Throws Error(code) if the system cannot
/// tell: a disk that does not answer is not an empty one.
bool path_exists(const std::string& path, ExitCode code = ExitCode::usage);
/// Returns the end of the sentence that says that a path does not exist: how to download a model, if the path looks
/// like its name on the Hugging Face hub (owner/name, and there is no folder `owner`); else "".
std::string hub_hint(const std::string& path);
/// Returns whether a folder, or a link to one, stands there. Throws like path_exists().
bool is_directory(const std::string& path, ExitCode code = ExitCode::usage);
/// Returns "." for a bare name.
std::string parent_directory(const std::string& path);
/// Returns a path from the root on, by its names alone: another host may have other links. Without a slash at its end.
std::string whole_path(const std::string& path);
/// Returns the last component.
std::string file_name(const std::string& path);
std::int64_t file_size(const std::string& path, ExitCode code);
/// Returns what an unprivileged user may still write to the file system of an existing path.
std::int64_t free_bytes(const std::string& path, ExitCode code);

/// Returns whether what stands at path is a regular file that this process has used: that it has opened with File (but
/// for peek() and create(), and since forgotten with remove_tree()), by whatever name. No output replaces such a file
/// (framework/output/output_file.h). A path that cannot be looked at is none. Thread-safe.
bool used_by_this_process(const std::string& path);
/// Returns whether the regular file at path begins with these bytes. A look: the file does not count as used.
bool begins_with(const std::string& path, std::string_view head, ExitCode code);

/// Returns the whole content; an Error if it is longer than max_bytes.
std::string read_file(const std::string& path, ExitCode code, std::int64_t max_bytes = std::int64_t{64} << 20);
/// Throws Error(code) if something stands at path that is no regular file: a link, a folder, a FIFO, a device, a
/// socket.
void require_regular_or_absent(const std::string& path, ExitCode code);
/// Makes or replaces a regular file by writing a temporary one beside it (unique_name(path, "partial")): fsync, rename,
/// fsync of the folder. After a crash the old content or the new one is there, whole.
void write_file(const std::string& path, std::string_view content, ExitCode code);
/// Renames (replacing a file that stands there) and makes the name durable: fsync of the folder of `to`.
void rename_path(const std::string& from, const std::string& to, ExitCode code);
/// The same, but never replaces what stands at `to`: then throws Error(code). (A file system that cannot promise it is
/// looked at first.)
void rename_to_new(const std::string& from, const std::string& to, ExitCode code);
/// Gives the file at `from` a second name, `to`: a hard link, with no copy of its content. Returns false if the file
/// system refuses, as it does for another file system, for one without links, and for files of other users.
bool link_file(const std::string& from, const std::string& to);
void sync_directory(const std::string& path, ExitCode code);
/// Makes a folder and those above it; content with one that exists.
void make_directories(const std::string& path, ExitCode code);
/// Makes a folder of unique_name(path, kind). Returns its path.
std::string make_unique_directory(const std::string& path, std::string_view kind, ExitCode code);
/// Returns path, or the nearest above it that exists.
std::string nearest_existing(const std::string& path);
/// Throws unless a file can be made in the folder.
void check_writable(const std::string& directory, ExitCode code);
/// Returns whether a file of this name is what a check_writable() that was killed left behind.
bool is_probe(const std::string& name);
/// Returns the names in a folder, sorted.
std::vector<std::string> list_directory(const std::string& path, ExitCode code);
/// Removes a file or a folder with all below it; content if it is not there. Symbolic links are not followed. Only for
/// what this program made: its name says so.
void remove_tree(const std::string& path, ExitCode code);

}  // namespace ringtrain
