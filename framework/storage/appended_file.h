// A file that grows by whole records on a disk that may refuse some: what is refused waits in memory, and no part of it
// stays in the file.
#pragma once

#include <string>
#include <string_view>

#include "framework/storage/files.h"

namespace ringtrain {

class AppendedFile {
 public:
  AppendedFile() = default;
  /// Opens the file to append to it; made if missing. Throws Error(code), as append() does.
  AppendedFile(const std::string& path, ExitCode code) : file_(File::append_to(path, code)) {}

  const std::string& path() const { return file_.path(); }
  /// Returns the bytes that wait.
  std::size_t waiting() const { return waiting_.size(); }
  /// Takes a record, which waits for append().
  void add(std::string_view record) { waiting_ += record; }
  /// Appends all that waits. If the disk refuses: throws, cuts what was written of it, and all of it waits on.
  void append();

 private:
  void undo();
  File file_;
  std::string waiting_;
  std::int64_t end_ = 0;  // of the last whole record, while torn_
  bool torn_ = false;     // a part of what waits may stand in the file
};

}  // namespace ringtrain
