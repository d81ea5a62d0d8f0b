// A file that a program was asked to make: a timeline, the results of an evaluation, a token file. It grows under a
// name of its own beside the path and takes the path's name when it is whole. What stands there is replaced only if it
// is a former output of the same kind, and never if it is an input of this run, a link, or no regular file. Of several
// processes that want to write one path, one does, and the others fail with a sentence.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/error.h"
#include "framework/process/unfinished.h"
#include "framework/storage/files.h"

namespace ringtrain {

/// What an output may replace.
struct OutputRules {
  std::string kind;  // "a timeline of train --trace", for sentences
  /// Return whether the regular file at path is a former output of this kind. Null: nothing is ever replaced.
  std::function<bool(const std::string& path)> is_former = nullptr;
  bool overwrite = false;  // any regular file may be replaced, but for inputs
  /// Return the files that this run reads or keeps beside the output. Asked at each check: a run makes new ones.
  std::function<std::vector<std::string>()> inputs = nullptr;
  std::string remedy = "choose another path";  // what to do about a file that is in the way
};

/// Throws Error(code), with the reason and what to do, if these rules keep an output from path, or if another process
/// is writing one there. Leaves nothing and changes nothing. The folder need not exist yet.
void check_output(const std::string& path, const OutputRules& rules, ExitCode code);

class OutputFile {
 public:
  /// Keeps other processes from writing path until this object goes or its process ends, and removes what processes
  /// that were killed left half-written for it. Throws Error(code) as check_output() does, or if the folder, which must
  /// exist, cannot be written.
  OutputFile(const std::string& path, OutputRules rules, ExitCode code);
  /// Removes what was not published.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  /// Return where the content goes before publish(): an empty file at first.
  const std::string& partial() const { return partial_; }
  /// Return the same, open; to be written from its beginning.
  File& file() { return file_; }
  /// Throws Error(code) if the rules keep it from the path's name by now.
  void check() const;
  /// Brings the content to the disk and gives it the path's name. Throws Error(code) as check() does, or if the disk
  /// refuses.
  void publish();

 private:
  std::string path_, partial_;
  OutputRules rules_;
  ExitCode code_;
  std::optional<Unfinished> unfinished_;  // goes with a process that a signal ends
  File file_;                             // locked as long as it is open
  bool published_ = false;
};

}  // namespace ringtrain
