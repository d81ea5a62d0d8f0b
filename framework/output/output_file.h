// A file that a program was asked to make: a timeline, the results of an evaluation, a token file. It grows under a
// name of its own beside the path and takes the path's name when it is whole. What stands there is replaced only if it
// is a former output of the same kind, which its first bytes say, and never if this process has used it, if it is an
// input of this run, a link, or no regular file. Of several processes that want to write one path, one does, and the
// others fail with a sentence.
//
// All that a rule needs must be said: OutputRules has no defaults, and each of its parameters a type of its own.
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

/// What sentences say of an output.
struct OutputKind {
  std::string name;  // "a timeline of train --trace"
  std::string flag;  // that names the path: "--trace"
};

/// How the files of a kind begin, and by what a former one is known again. No other program writes these bytes, and no
/// person by accident.
class OutputMark {
 public:
  /// head: at least 16 bytes.
  static OutputMark begins(std::string_view head);
  /// Of a JSON object by marked_json().
  static OutputMark json(std::string_view writer);
  /// The kind has no mark: no file is a former one.
  static OutputMark none() { return OutputMark(""); }

  const std::string& head() const { return head_; }

 private:
  explicit OutputMark(std::string head) : head_(std::move(head)) {}
  std::string head_;
};

/// Returns the text of a JSON object, as dump(2) makes it, with a first member "written_by" more: its mark.
std::string marked_json(std::string_view writer, const std::string& object);

/// What an output never replaces, beside the files that this process has used.
class OutputInputs {
 public:
  /// files: returns those that the run reads or keeps, asked at each check, since a run makes new ones.
  static OutputInputs of(std::function<std::vector<std::string>()> files);
  /// reason: why there are none but what this process itself has used by then.
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

  /// Throws Error(code), with the reason and what to do, if the rules keep an output from path by what stands there.
  void check(const std::string& path, ExitCode code) const;
  /// Throws Error(code) if the regular file at path cannot be read, Error(unmarked) unless it begins with the mark.
  void require_mark(const std::string& path, ExitCode code, ExitCode unmarked) const;

 private:
  OutputKind kind_;
  OutputMark mark_;
  OutputInputs inputs_;
};

/// Throws Error(code), with the reason and what to do, if these rules keep an output from path, or if another process
/// is writing one there. Leaves nothing and changes nothing. The folder need not exist yet.
void check_output(const std::string& path, const OutputRules& rules, ExitCode code);

/// Returns the content of a former output that is to be replaced, so that the reading does not make it an input. Throws
/// Error(code) if what stands there has not the rules' mark, or cannot be read.
std::string read_previous_output(const std::string& path, const OutputRules& rules, ExitCode code);

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
  /// Returns where the content goes before publish(): an empty file at first.
  const std::string& partial() const { return partial_; }
  /// Returns the same, open; to be written from its beginning.
  File& file() { return file_; }
  /// Throws Error(code) if the rules keep it from the path's name by now.
  void check() const;
  /// Brings the content to the disk and gives it the path's name. Throws Error(code) as check() does, or if the disk
  /// refuses; Error(internal) if the content lacks the kind's mark.
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
  std::optional<Unfinished> unfinished_;  // goes with a process that a signal ends
  File file_;                             // locked as long as it is open
  bool published_ = false;
};

}  // namespace ringtrain
