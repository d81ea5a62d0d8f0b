#include "framework/standard_streams.h"

#include <fcntl.h>
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

void flush_results() {
  const int failed_before = std::ferror(stdout);
  errno = 0;
  if (std::fflush(stdout) == 0 && !failed_before) return;
  const int error = errno;
  ::__fpurge(stdout);
  fail(ExitCode::usage, "cannot write the output to stdout: {}",
       error ? std::generic_category().message(error) : "an earlier write failed");
}

}  // namespace ringtrain
