// Runs one of the built programs as a child, with its output in files: exit code, text, and the memory that it used
// according to the system.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/error.h"

namespace ringtrain::testing {

struct ChildResult {
  int code = -1;  // exit code; 256 + signal if a signal ended it
  std::string out, err;
  std::int64_t peak_resident_bytes = 0;  // of the program itself; 0 with sanitizers, which add their own
};

class Child {
 public:
  /// Starts `program` (a name in the folder of built programs, or a whole path) with arguments; output goes to files in
  /// `folder`, which is also its working directory. before_start: called in the child before the program starts, when
  /// its streams are set up; it may only make calls that are safe between fork and exec.
  Child(const std::string& program, const std::vector<std::string>& arguments, const std::string& folder,
        const std::function<void()>& before_start = {});
  pid_t id() const { return id_; }
  ChildResult wait();
  /// Waits for at most so long, and then kills it: code -1.
  ChildResult wait_at_most(double seconds);

 private:
  std::string folder_;
  pid_t id_ = -1;
};

/// Sets variables for children of mpirun: memory kept by MPI libraries is not a leak, each test has a separate TMPDIR
/// (mpiruns that share one may interfere with each other), and root may start it. The caller unsets TMPDIR at the end.
void prepare_for_mpirun(const std::string& folder);

inline ChildResult run_child(const std::string& program, const std::vector<std::string>& arguments,
                             const std::string& folder, const std::function<void()>& before_start = {}) {
  return Child(program, arguments, folder, before_start).wait();
}

/// The same for a list of the program and its arguments.
inline ChildResult run_command(const std::vector<std::string>& command, const std::string& folder,
                               const std::function<void()>& before_start = {}) {
  return run_child(command[0], {command.begin() + 1, command.end()}, folder, before_start);
}

/// Expects a program to have ended with this code, and to have printed every part on stderr.
void expect_end(const ChildResult& result, int code, const std::vector<std::string>& parts = {},
                const CallerLine& here = CallerLine::current());
/// The same for a program that refuses: it prints nothing on stdout, and its last line on stderr begins with its name.
void expect_refused(const ChildResult& result, int code, const std::vector<std::string>& parts,
                    const CallerLine& here = CallerLine::current());

/// What a child may do before its program starts: set a limit (RLIMIT_FSIZE, ...), or use a file as a stream, or a pipe
/// without a reader.
void limit(int resource, std::int64_t most);
void replace_stream(int stream, const char* path, int flags);
void break_pipe(int stream);
/// Possible states of the stream of messages when a program starts: it is full, it has no reader, it is closed.
extern const std::map<std::string, std::function<void()>> broken_streams;

}  // namespace ringtrain::testing
