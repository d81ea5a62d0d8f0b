// A folder that a program was asked to make. It grows under a name of its own beside the path,
// NAME.partial-PROCESS-RANDOM, and takes the path's name when it is whole. That folder holds a locked file that says
// what it is, and `content`, so that nothing of it is published and nothing without it is ever removed.
#pragma once

#include <cstdint>
#include <string>

#include "framework/process/unfinished.h"
#include "framework/storage/files.h"

namespace ringtrain {

/// Throws Error(code) with the reason if no folder can be made at path: the path is empty, something stands there,
/// another process is making one there, or nothing can be written beside it. Removes what killed processes left for
/// this path, and changes nothing else.
void check_output_folder(const std::string& path, ExitCode code);

class OutputFolder {
 public:
  /// Makes the folders above path and a folder to fill. Throws Error(code) as check_output_folder() does, and removes
  /// the same.
  OutputFolder(const std::string& path, ExitCode code);
  /// Removes what was not published. A signal that ends the process does the same.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Returns where the content goes before publish(): an empty folder at first.
  const std::string& content() const { return content_; }
  /// Throws Error(code) with the bytes if so many do not fit the disk, or one file of `largest` bytes the limit of this
  /// process (ulimit -f).
  void require_room(std::int64_t bytes, std::int64_t largest) const;
  /// Brings the folder to the disk, whose files have been, and gives it the path's name. Throws Error(code) if
  /// something stands there by now.
  void publish();

 private:
  std::string path_, partial_, content_;
  ExitCode code_;
  Unfinished unfinished_;
  File lock_;
  bool published_ = false;
};

}  // namespace ringtrain
