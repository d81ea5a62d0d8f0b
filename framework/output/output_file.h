// A file that a program was asked to write: a timeline, the results of an evaluation, a token file. It is written under
// a temporary name next to the path and gets the path's name when it is complete. An existing file is replaced only if
// it is an earlier output of the same kind, which its first bytes show. It is never replaced if this process has used
// it, if it is an input of this run, a link, or not a regular file. If several processes want to write one path, one
// does, and the others fail with a message.
//
// OutputRules has no defaults, and each of its parameters has its own type, so every rule must be given explicitly.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/error.h"
#include "framework/process/unfinished.h"
#include "framework/storage/files.h"

namespace ringtrain {

/// How messages describe an output.
struct OutputKind {
  std::string name;  // "a timeline of train --trace"
  std::string flag;  // the flag that names the path: "--trace"
};

/// The first bytes of files of a kind, by which an earlier one is recognized. No other program writes these bytes, and
/// nobody writes them by accident.
class OutputMark {
 public:
  /// head: at least 16 bytes.
  static OutputMark begins(std::string_view head);
  /// The mark of a JSON object that marked_json() returns.
  static OutputMark json(std::string_view writer);
  /// The kind has no mark: no existing file is recognized as an earlier output.
  static OutputMark none() { return OutputMark(""); }

  const std::string& head() const { return head_; }

 private:
  explicit OutputMark(std::string head) : head_(std::move(head)) {}
  std::string head_;
};

/// Returns the text of a JSON object, as dump(2) formats it, with an additional first member "written_by": its mark.
std::string marked_json(std::string_view writer, const std::string& object);

/// Files that an output never replaces, in addition to those that this process has used.
class OutputInputs {
 public:
  /// files: returns the files that the run reads or keeps. It is called at each check, because a run makes new ones.
  static OutputInputs from(std::function<std::vector<std::string>()> files);
  /// reason: why there are no inputs except the files that this process itself has used by then.
  static OutputInputs none(const char* reason);

  std::vector<std::string> files() const { return files_ ? files_() : std::vector<std::string>{}; }

 private:
  explicit OutputInputs(std::function<std::vector<std::string>()> files) : files_(std::move(files)) {}
  std::function<std::vector<std::string>()> files_;
};

/// What an output may replace.
class OutputRules {
 public:
  OutputRules(OutputKind kind, OutputMark mark, OutputInputs inputs);

  /// Throws Error(code), with the reason and what to do, if these rules forbid replacing the existing file at path.
  void check(const std::string& path, ExitCode code) const;
  /// Throws Error(code) if the regular file at path cannot be read, Error(unmarked) unless it begins with the mark.
  void require_mark(const std::string& path, ExitCode code, ExitCode unmarked) const;

 private:
  OutputKind kind_;
  OutputMark mark_;
  OutputInputs inputs_;
};

/// Throws Error(code), with the reason and what to do, if these rules forbid an output at path, or if another process
/// is writing one there. Changes nothing and leaves nothing behind. The folder need not exist yet.
void check_output(const std::string& path, const OutputRules& rules, ExitCode code);

/// Returns the content of an earlier output that is about to be replaced; reading it does not make it an input. Throws
/// Error(code) if the existing file does not have the rules' mark, or cannot be read.
std::string read_previous_output(const std::string& path, const OutputRules& rules, ExitCode code);

class OutputFile {
 public:
  /// Keeps other processes from writing path until this object is destroyed or its process ends, and removes partial
  /// files that killed processes left for it. Throws the errors of check_output(), and Error(code) if the folder, which
  /// must exist, is not writable.
  OutputFile(const std::string& path, OutputRules rules, ExitCode code);
  /// Removes the file unless it was published.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  /// Returns the path of the content before publish(): an empty file initially.
  const std::string& partial() const { return partial_; }
  /// Returns the same file, open; write it from its beginning.
  File& file() { return file_; }
  /// Throws Error(code) if the rules now forbid the path's name.
  void check() const;
  /// Brings the content to the disk and gives it the path's name. Throws the errors of check(), Error(code) if the disk
  /// refuses, and Error(internal) if the content does not have the kind's mark.
  void publish();
  /// Writes the content first.
  void publish(std::string_view content) {
    file_.write(content);
    publish();
  }

 private:
  std::string path_, partial_;
  OutputRules rules_;
  ExitCode code_;
  std::optional<Unfinished> unfinished_;  // removed if a signal ends the process
  File file_;                             // locked while it is open
  bool published_ = false;
};

}  // namespace ringtrain
