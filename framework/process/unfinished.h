// Files and folders that a process has begun to write and not finished. If a signal ends the process, the handlers of
// framework/system/signals.h call remove_unfinished(). (The next writer removes what SIGKILL leaves behind.)
#pragma once

#include <string>

namespace ringtrain {

/// While this object lives, a signal that ends the process also removes the file or folder at path. Only for paths that
/// this process makes under a unique_name(). Never throws; a path that does not fit into the table of 32 paths is not
/// removed.
class Unfinished {
 public:
  explicit Unfinished(const std::string& path) noexcept;
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

 private:
  int slot_ = -1;
};

/// Removes all unfinished files, and folders with their content. Follows no link. Safe inside a signal handler; the
/// process must end after it.
void remove_unfinished() noexcept;

}  // namespace ringtrain
