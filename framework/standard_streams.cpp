#include "framework/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "framework/error.h"

namespace ringtrain {

void claim_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest free descriptor is this one: those below it are open by now.
    const int opened = ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened != stream) ::_exit(static_cast<int>(ExitCode::usage));  // nowhere to say it
  }
}

void write_message(std::FILE* file, std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fflush(file) == 0 && written) return;
  ::__fpurge(file);  // what could not be written is not tried again
  std::clearerr(file);
}

namespace {

/// error: of the system; 0: not known any more.
[[noreturn]] void refuse_results(int error) {
  ::__fpurge(stdout);  // what could not be written is not tried again
  fail(ExitCode::usage, "cannot write the output to stdout: {}",
       error ? std::generic_category().message(error) : "an earlier write failed");
}

}  // namespace

void require_results() {
  if (::write(STDOUT_FILENO, "", 0) < 0) refuse_results(errno);
  pollfd reader{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&reader, 1, 0) > 0 && (reader.revents & POLLERR) != 0) refuse_results(EPIPE);
}

void write_results(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) < text.size()) refuse_results(errno);
  flush_results();
}

void flush_results() {
  const int failed_before = std::ferror(stdout);
  errno = 0;
  if (std::fflush(stdout) != 0 || failed_before) refuse_results(errno);
}

}  // namespace ringtrain
