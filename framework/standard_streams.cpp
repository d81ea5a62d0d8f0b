#include "framework/standard_streams.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "framework/error.h"

namespace ringtrain {

namespace {

/// The character that a text begins with. bytes: 0 if it begins with none.
struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;
};

Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  char32_t code = lead & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr char32_t least[] = {0x80, 0x800, 0x10000};  // a longer form than needed is none
  if (code < least[bytes - 2] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, bytes};
}

/// Returns whether a terminal may do something at this character: C0 and C1 controls, and marks of direction.
bool steers_a_terminal(char32_t code) {
  if (code == '\n' || code == '\t') return false;
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return true;
  return code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

void claim_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest free descriptor is this one: those below it are open by now.
    const int opened = ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened != stream) ::_exit(static_cast<int>(ExitCode::usage));  // nowhere to say it
  }
}

std::string visible(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.bytes == 0) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
      text.remove_prefix(1);
      continue;
    }
    if (!steers_a_terminal(character.code)) {
      result += text.substr(0, character.bytes);
    } else if (character.bytes == 1) {
      result += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(character.code));
    } else {
      result += fmt::format("\\u{{{:x}}}", static_cast<std::uint32_t>(character.code));
    }
    text.remove_prefix(character.bytes);
  }
  return result;
}

void write_message(std::FILE* file, std::string_view text) {
  write_control(file, visible(text));
}

void write_in_handler(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

void print_result(std::string_view text) {
  const std::string shown = visible(text);
  std::fwrite(shown.data(), 1, shown.size(), stdout);  // flush_results() tells what became of it
}

void write_control(std::FILE* file, std::string_view text) {
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
