#include "framework/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "framework/error.h"
#include "framework/text/utf8.h"

namespace ringtrain {

namespace {

/// Returns whether a terminal may interpret this character: C0 and C1 controls, and marks of direction.
bool steers_a_terminal(char32_t code) {
  if (code == '\n' || code == '\t') return false;
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return true;
  return code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

/// error: the system's; 0: no longer known.
[[noreturn]] void refuse_results(int error) {
  ::__fpurge(stdout);  // discard the text that could not be written
  fail(ExitCode::usage, "cannot write the output to stdout: {}",
       error ? std::generic_category().message(error) : "an earlier write failed");
}

}  // namespace

void claim_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest free descriptor is this one: those below it are already open.
    const int opened = ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened != stream) ::_exit(static_cast<int>(ExitCode::usage));  // there is no stream for a message
  }
}

std::string visible(std::string_view text) {
  return spelled_out(text, steers_a_terminal);
}

void write_message(std::FILE* file, std::string_view text) {
  write_control(file, visible(text));
}

void write_in_handler(std::string_view text) {
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  errno = error;
}

void print_result(std::string_view text) {
  const std::string shown = visible(text);
  std::fwrite(shown.data(), 1, shown.size(), stdout);  // flush_results() reports whether it succeeded
}

void write_control(std::FILE* file, std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fflush(file) == 0 && written) return;
  ::__fpurge(file);  // discard the text that could not be written
  std::clearerr(file);
}

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
