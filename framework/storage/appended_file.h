// A file that grows by whole records on a disk that may refuse some of them: a refused record waits in memory, and no
// part of it stays in the file.
#pragma once

#include <string>
#include <string_view>

#include "framework/storage/files.h"

namespace ringtrain {

class AppendedFile {
 public:
  AppendedFile() = default;
  /// Opens the file to append to it; creates it if it is missing. Throws the errors of append().
  AppendedFile(const std::string& path, ExitCode code) : file_(File::append_to(path, code)) {}

  const std::string& path() const { return file_.path(); }
  /// Returns the number of bytes that wait.
  std::size_t waiting() const { return waiting_.size(); }
  /// Takes a record, which waits for append().
  void add(std::string_view record) { waiting_ += record; }
  /// Appends all waiting records. If the disk refuses, throws, removes the part that was written, and keeps all of
  /// them.
  void append();

 private:
  void undo();
  File file_;
  std::string waiting_;
  std::int64_t end_ = 0;  // of the last whole record, while torn_
  bool torn_ = false;     // the file may contain a part of a waiting record
};

}  // namespace ringtrain
