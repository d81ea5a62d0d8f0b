// The operating system's files, wrapped once. Every failure is an Error with the caller's exit code and one sentence
// that names the path, the system's own text, and the bytes involved; for a full disk it says how many bytes were
// needed. This file knows no formats. Thread-safe, except that two threads must not use one File (they may share it for
// pread).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/error.h"

namespace ringtrain {

/// The result of requesting a file's lock.
enum class LockState {
  ours,    // until the file closes, or this process ends
  taken,   // another opening of the file has it, here or elsewhere
  unknown  // this file system has no locks
};

/// What the system knows about an open file, except its content. If two stamps are equal, the file was most likely
/// not written in between; time stamps are only as fine as the file system's clock, a few milliseconds. Creating or
/// removing a hard link changes ctime but not the content, so ctime is not compared if the number of links differs. A
/// file without links has been replaced or removed.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, links = 0;
  std::int64_t bytes = 0, allocated = 0;         // allocated: on the disk; less than bytes if the file is sparse
  std::int64_t modified_ns = 0, changed_ns = 0;  // mtime and ctime
  friend bool operator==(const FileStamp& a, const FileStamp& b) {
    return a.device == b.device && a.inode == b.inode && a.bytes == b.bytes && a.modified_ns == b.modified_ns &&
           (a.changed_ns == b.changed_ns || (a.links != b.links && a.links > 0 && b.links > 0));
  }
};

/// An open regular file; movable, closed at the end. Anything else (a folder, a FIFO, a device, a socket) is refused at
/// once. Only open() and peek() follow a link in the last component, so nothing is written through a link. Every file
/// that is opened with a function other than peek() and create() counts as used by this process: see
/// used_by_this_process().
class File {
 public:
  File() = default;
  /// Opens an existing regular file for reading.
  static File open(const std::string& path, ExitCode code);
  /// The same for a look that does not make the file an input: at an earlier output, or at a file that another process
  /// writes.
  static File peek(const std::string& path, ExitCode code);
  /// Opens an existing regular file for reading and writing in place.
  static File open_for_update(const std::string& path, ExitCode code);
  /// Creates a file that must not exist yet.
  static File create(const std::string& path, ExitCode code);
  /// Opens a file for appending; creates it if it is missing.
  static File append_to(const std::string& path, ExitCode code);
  /// Opens a file for reading and writing in place; creates it if it is missing.
  static File open_or_create(const std::string& path, ExitCode code);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  bool is_open() const { return descriptor_ >= 0; }
  std::int64_t size() const { return stamp().bytes; }
  FileStamp stamp() const;
  /// Reads exactly `bytes` bytes from `offset`; an earlier end of the file is an Error.
  void read_at(std::int64_t offset, void* data, std::size_t bytes) const;
  /// Returns the first `bytes` bytes, or all of a shorter file.
  std::string head(std::size_t bytes) const;
  /// Reads the whole content; it is an Error if it is longer than max_bytes.
  std::string content(std::int64_t max_bytes) const;
  /// Asks the system to load these bytes into memory soon, and does not wait. Never an Error: it is a hint.
  void prefetch(std::int64_t offset, std::int64_t bytes) const;
  void write_at(std::int64_t offset, const void* data, std::size_t bytes);
  /// Writes at the file's position, which is its end after append_to.
  void write(std::string_view text);
  /// Sets the file's size to `bytes` and reserves them on the disk, so that a full disk is detected now and not later.
  void reserve(std::int64_t bytes);
  void truncate(std::int64_t bytes);
  /// Requests the file's lock without waiting: only one of all openings of the file can have it.
  LockState try_lock();
  /// Holds the file together with other sharers, until it closes: meanwhile, try_lock() fails for everyone. Returns
  /// false if the file is locked. Never an Error: on a file system without locks, nobody holds anything.
  bool try_share();
  /// Returns whether its path still names this file: it was not renamed, replaced, or removed.
  bool is_at_path() const;
  /// Returns when content and size have reached the disk.
  void sync();
  /// Closes the file and reports the errors that the system then finds; the destructor cannot report them.
  void close();

 private:
  enum class Use { none, counts };
  File(const std::string& path, ExitCode code, int flags, const char* what, Use use = Use::counts);
  /// Returns how many bytes were read: fewer than `bytes` only at the end of the file.
  std::size_t read_some(std::int64_t offset, void* data, std::size_t bytes) const;
  [[noreturn]] void fail_write(int error, std::size_t bytes, std::size_t done) const;

  std::string path_;
  ExitCode code_ = ExitCode::internal;
  int descriptor_ = -1;
};

/// Keeps other processes out with a lock on a file, held until this object is destroyed or the process dies. The file
/// remains, with the number of the last process that had it. On a file system without locks, it only keeps out what is
/// visible: a process of that number that lives on this machine and runs the same program.
class FileLock {
 public:
  FileLock() = default;
  /// Throws Error(code) that begins with `what` and names the process if another process (or another FileLock of this
  /// one) holds it. Throws Error(code) and changes nothing if the file contains anything but the number of a process.
  static FileLock acquire(const std::string& path, const std::string& what, ExitCode code);
  /// Returns false if the file system has no locks: then others may hold it too, and a person should learn about that.
  bool is_exclusive() const { return exclusive_; }

 private:
  File file_;
  bool exclusive_ = true;
};

/// Returns PATH.KIND-PROCESS-RANDOM, with the number of this process and 8 hexadecimal digits: a name that nobody else
/// uses, for a file that has no final name yet, or no longer has one.
std::string unique_name(const std::string& path, std::string_view kind);
/// The parts of a name that unique_name() returned, as views of it.
struct UniqueName {
  std::string_view base;  // the path's last component
  std::string_view process;
};
/// Returns the parts of a last component that unique_name() returned for this kind; nothing for any other name.
std::optional<UniqueName> parse_unique_name(std::string_view name, std::string_view kind);

/// Returns whether a path exists, even as a dangling link. Throws Error(code) if the system cannot determine it: a disk
/// that does not answer is not an empty one.
bool path_exists(const std::string& path, ExitCode code = ExitCode::usage);
/// Returns the end of the sentence that reports a missing path: how to download a model, if the path looks like a
/// model's name on the Hugging Face hub (owner/name, and there is no folder `owner`); otherwise "".
std::string hub_hint(const std::string& path);
/// Returns whether the path is a folder or a link to one. Throws the errors of path_exists().
bool is_directory(const std::string& path, ExitCode code = ExitCode::usage);
/// Returns "." for a name without a folder.
std::string parent_directory(const std::string& path);
/// Returns an absolute path, computed from names only because another host may have other links. It ends without a
/// slash.
std::string whole_path(const std::string& path);
/// Returns the last component.
std::string file_name(const std::string& path);
std::int64_t file_size(const std::string& path, ExitCode code);
/// Returns the bytes that an unprivileged user can still write to the file system of an existing path; INT64_MAX if
/// that file system does not count them.
std::int64_t free_bytes(const std::string& path, ExitCode code);
/// Throws Error(code) if the folder of path, which need not exist, does not have so many free bytes.
void require_free_bytes(const std::string& path, std::int64_t bytes, ExitCode code);

/// Returns whether path is a regular file that this process has used, i.e. opened with File under any name (except with
/// peek() and create(), and unless remove_tree() has removed it since). No output replaces such a file
/// (framework/output/output_file.h). Returns false for a path that cannot be examined. Thread-safe.
bool used_by_this_process(const std::string& path);
/// Returns whether the regular file at path begins with these bytes. The file does not count as used.
bool begins_with(const std::string& path, std::string_view head, ExitCode code);

/// Returns the whole content; it is an Error if it is longer than max_bytes.
std::string read_file(const std::string& path, ExitCode code, std::int64_t max_bytes = std::int64_t{64} << 20);
/// Throws Error(code) if path exists and is not a regular file but a link, a folder, a FIFO, a device, or a socket.
void require_regular_or_absent(const std::string& path, ExitCode code);
/// Creates or replaces a regular file by writing a temporary one next to it (unique_name(path, "partial")): fsync,
/// rename, fsync of the folder. After a crash, either the old or the new content exists, complete.
void write_file(const std::string& path, std::string_view content, ExitCode code);
/// Creates a file that must not exist yet, with this content, and brings it to the disk.
void write_new_file(const std::string& path, std::string_view content, ExitCode code);
/// Renames (replacing an existing file) and makes the name durable: fsync of the folder of `to`.
void rename_path(const std::string& from, const std::string& to, ExitCode code);
/// The same, but never replaces an existing `to`: throws Error(code) instead. (If a file system cannot guarantee this,
/// the path is checked first.)
void rename_to_new(const std::string& from, const std::string& to, ExitCode code);
/// Gives the file at `from` a second name, `to`: a hard link, without a copy of its content. Returns false if the file
/// system refuses, as it does across file systems, if it has no links, and for files of other users.
bool link_file(const std::string& from, const std::string& to);
void sync_directory(const std::string& path, ExitCode code);
/// Makes a folder and those above it; an existing folder is not an error.
void make_directories(const std::string& path, ExitCode code);
/// Makes a folder named unique_name(path, kind). Returns its path.
std::string make_unique_directory(const std::string& path, std::string_view kind, ExitCode code);
/// Returns path, or the nearest folder above it that exists.
std::string nearest_existing(const std::string& path);
/// Throws unless a file can be made in the folder.
void check_writable(const std::string& directory, ExitCode code);
/// Returns whether a file of this name was left behind by a check_writable() that was killed.
bool is_probe(const std::string& name);
/// Returns the names in a folder, sorted.
std::vector<std::string> list_directory(const std::string& path, ExitCode code);
/// Removes a file or a folder with all its content; a missing path is not an error. Symbolic links are not followed.
/// Only for paths that this program made, which their names show.
void remove_tree(const std::string& path, ExitCode code);

}  // namespace ringtrain
