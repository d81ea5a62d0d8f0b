#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <regex>
#include <thread>

#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {

Child::Child(const std::string& program, const std::vector<std::string>& arguments, const std::string& folder,
             const std::function<void()>& before_start)
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
  for (const int file : {out_file, err_file}) {
    if (file > STDERR_FILENO) ::close(file);
  }
  if (before_start) before_start();
  ::execv(path.c_str(), argv.data());
  ::_exit(127);
}

void limit(int resource, std::int64_t most) {
  const rlimit both{static_cast<rlim_t>(most), static_cast<rlim_t>(most)};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

void replace_stream(int stream, const char* path, int flags) {
  const int file = ::open(path, flags);
  ::dup2(file, stream);
  if (file != stream) ::close(file);
}

void break_pipe(int stream) {
  int ends[2];
  if (::pipe(ends) != 0) ::_exit(125);
  ::close(ends[0]);
  ::dup2(ends[1], stream);
  ::close(ends[1]);
}

const std::map<std::string, std::function<void()>> broken_streams{
    {"full", [] { replace_stream(STDERR_FILENO, "/dev/full", O_WRONLY); }},
    {"gone", [] { break_pipe(STDERR_FILENO); }},
    {"closed", [] {
       for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(stream);
     }}};

void expect_end(const ChildResult& result, int code, const std::vector<std::string>& parts, const CallerLine& here) {
  const ::testing::ScopedTrace trace(here.file_name(), static_cast<int>(here.line()), "the program's end");
  EXPECT_EQ(result.code, code) << result.err;
  EXPECT_TRUE(holds_all(result.err, parts));
}

void expect_refused(const ChildResult& result, int code, const std::vector<std::string>& parts,
                    const CallerLine& here) {
  expect_end(result, code, parts, here);
  const ::testing::ScopedTrace trace(here.file_name(), static_cast<int>(here.line()), "the refusal");
  EXPECT_EQ(result.out, "");
  static const std::regex last_line("(^|\n)[a-z]+: [^\n]*\n$");
  EXPECT_TRUE(std::regex_search(result.err, last_line)) << result.err;
}

ChildResult Child::wait_at_most(double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  siginfo_t ended{};
  while (std::chrono::steady_clock::now() < deadline) {
    ended.si_pid = 0;
    if (::waitid(P_PID, static_cast<id_t>(id_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == id_) {
      return wait();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(id_, SIGKILL);
  ChildResult result = wait();
  result.code = -1;
  return result;
}

ChildResult Child::wait() {
  ChildResult result;
  int status = 0;
  rusage usage{};
  if (::wait4(id_, &status, 0, &usage) != id_) return result;
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
  result.out = content_of(folder_ + "/stdout.txt");
  result.err = content_of(folder_ + "/stderr.txt");
#ifndef RINGTRAIN_SANITIZED
  result.peak_resident_bytes = static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
#endif
  return result;
}

void prepare_for_mpirun(const std::string& folder) {
  ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  ::setenv("TMPDIR", folder.c_str(), 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
}

}  // namespace ringtrain::testing
