// Runs one of the built programs as a child, with its output in files: exit code, text, and the memory that the system
// says it used.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ringtrain::testing {

struct ChildResult {
  int code = -1;  // exit code; 256 + signal if it died of one
  std::string out, err;
  std::int64_t peak_resident_bytes = 0;  // of the program itself
};

class Child {
 public:
  /// Starts `program` (a name in the folder of built programs, or a whole path) with arguments; output goes to files in
  /// `folder`, which is its working directory, too. max_file_bytes: no file may grow beyond it (0: any size).
  Child(const std::string& program, const std::vector<std::string>& arguments, const std::string& folder,
        std::int64_t max_file_bytes = 0);
  pid_t id() const { return id_; }
  ChildResult wait();

 private:
  std::string folder_;
  pid_t id_ = -1;
};

inline ChildResult run_child(const std::string& program, const std::vector<std::string>& arguments,
                             const std::string& folder, std::int64_t max_file_bytes = 0) {
  return Child(program, arguments, folder, max_file_bytes).wait();
}

}  // namespace ringtrain::testing
