#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {

Child::Child(const std::string& program, const std::vector<std::string>& arguments, const std::string& folder,
             std::int64_t max_file_bytes)
    : folder_(folder) {
  const std::string path = program.front() == '/' ? program : binary_folder() + "/" + program;
  const std::string out = folder + "/stdout.txt", err = folder + "/stderr.txt";
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  id_ = ::fork();
  if (id_ != 0) return;
  // The child: only calls that are safe between fork and exec.
  const int out_file = ::open(out.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  const int err_file = ::open(err.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  if (out_file < 0 || err_file < 0 || ::chdir(folder.c_str()) != 0) ::_exit(126);
  ::dup2(out_file, STDOUT_FILENO);
  ::dup2(err_file, STDERR_FILENO);
  if (max_file_bytes > 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{static_cast<rlim_t>(max_file_bytes), static_cast<rlim_t>(max_file_bytes)};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ::execv(path.c_str(), argv.data());
  ::_exit(127);
}

ChildResult Child::wait() {
  ChildResult result;
  int status = 0;
  rusage usage{};
  if (::wait4(id_, &status, 0, &usage) != id_) return result;
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
  result.out = content_of(folder_ + "/stdout.txt");
  result.err = content_of(folder_ + "/stderr.txt");
  result.peak_resident_bytes = static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
  return result;
}

}  // namespace ringtrain::testing
