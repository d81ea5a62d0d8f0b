// What a process has begun to write and not finished, so that a signal which ends the process takes it along: the
// handlers of framework/system/signals.h call remove_unfinished(). (What SIGKILL leaves behind, the next writer
// removes.)
#pragma once

#include <string>

namespace ringtrain {

/// As long as it lives, the file or folder at path goes with a process that a signal ends. Only for what this process
/// makes under a unique_name(). Never throws; what does not fit into the table of 32 paths goes without.
class Unfinished {
 public:
  explicit Unfinished(const std::string& path) noexcept;
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

 private:
  int slot_ = -1;
};

/// Removes what is unfinished, folders with all below them. Follows no link. Safe inside a signal handler; the process
/// must end after it.
void remove_unfinished() noexcept;

}  // namespace ringtrain
