// A folder that a program was asked to make. It is filled under a temporary name next to the path,
// NAME.partial-PROCESS-RANDOM, and gets the path's name when it is complete. The temporary folder holds `content` and a
// locked file that identifies it: the locked file is not published, and a folder without it is never removed.
#pragma once

#include <cstdint>
#include <string>

#include "framework/process/unfinished.h"
#include "framework/storage/files.h"

namespace ringtrain {

/// Throws Error(code) with the reason if no folder can be made at path: the path is empty or exists, another process is
/// making a folder there, or the parent folder is not writable. Removes what killed processes left for this path, and
/// changes nothing else.
void check_output_folder(const std::string& path, ExitCode code);

class OutputFolder {
 public:
  /// Makes the folders above path and a folder to fill. Throws the errors of check_output_folder(), and also removes
  /// what killed processes left.
  OutputFolder(const std::string& path, ExitCode code);
  /// Removes the folder unless it was published. A signal that ends the process does the same.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Returns the path of the content before publish(): an empty folder initially.
  const std::string& content() const { return content_; }
  /// Throws Error(code) with the bytes if that many do not fit on the disk, or if one file of `largest` bytes exceeds
  /// the limit of this process (ulimit -f).
  void require_room(std::int64_t bytes, std::int64_t largest) const;
  /// Brings the folder (whose files are on the disk already) to the disk, and gives it the path's name. Throws
  /// Error(code) if the path exists by now.
  void publish();

 private:
  std::string path_, partial_, content_;
  ExitCode code_;
  Unfinished unfinished_;
  File lock_;
  bool published_ = false;
};

}  // namespace ringtrain
