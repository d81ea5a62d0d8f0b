// Runs one of the built programs as a child, with its output in files: exit code, text, and the memory that the system
// says it used.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/error.h"

namespace ringtrain::testing {

struct ChildResult {
  int code = -1;  // exit code; 256 + signal if it died of one
  std::string out, err;
  std::int64_t peak_resident_bytes = 0;  // of the program itself
};

class Child {
 public:
  /// Starts `program` (a name in the folder of built programs, or a whole path) with arguments; output goes to files in
  /// `folder`, which is its working directory, too. before_start: called in the child before the program starts, with
  /// its streams in place; it may only call what is safe between fork and exec.
  Child(const std::string& program, const std::vector<std::string>& arguments, const std::string& folder,
        const std::function<void()>& before_start = {});
  pid_t id() const { return id_; }
  ChildResult wait();
  /// Waits for so long at most, and kills it then: code -1.
  ChildResult wait_at_most(double seconds);

 private:
  std::string folder_;
  pid_t id_ = -1;
};

/// Sets what children of mpirun read: memory that MPI libraries keep is no leak, each test has a TMPDIR of its own
/// (mpiruns that share one may trip over each other), and root may start it. Who calls it unsets TMPDIR in the end.
void prepare_for_mpirun(const std::string& folder);

inline ChildResult run_child(const std::string& program, const std::vector<std::string>& arguments,
                             const std::string& folder, const std::function<void()>& before_start = {}) {
  return Child(program, arguments, folder, before_start).wait();
}

/// Expects a program to have ended with this code, and to have said every part on stderr.
void expect_end(const ChildResult& result, int code, const std::vector<std::string>& parts = {},
                const CallerLine& here = CallerLine::current());
/// The same, of a program that refuses: it has nothing for stdout, and its last line on stderr begins with its name.
void expect_refused(const ChildResult& result, int code, const std::vector<std::string>& parts,
                    const CallerLine& here = CallerLine::current());

/// What a child may do before its program starts: give it a limit (RLIMIT_FSIZE, ...), a file as a stream, or a pipe
/// that nobody reads.
void limit(int resource, std::int64_t most);
void replace_stream(int stream, const char* path, int flags);
void break_pipe(int stream);
/// What may have become of the stream of messages when a program starts: it is full, nobody reads it, it is closed.
extern const std::map<std::string, std::function<void()>> broken_streams;

}  // namespace ringtrain::testing
