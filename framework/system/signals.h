// Signals that ask a run to save and end. SIGINT and SIGTERM are requests of a person or a scheduler; the second of
// them ends the process at once, unsaved, with a code of its own. The others are warnings, of which several may come
// for one reason: a closed terminal (SIGHUP), the end of a job's time (SIGUSR1, as Slurm sends it), the end of CPU time
// (SIGXCPU, each second), a power failure (SIGPWR). They ask like SIGTERM and never end a process that saves.
// The request is a flag that the run looks at between steps. One per process, while a SignalGuard lives. A step may
// take minutes, so the handler itself says what happens (announce_signals).
#pragma once

#include <csignal>
#include <string_view>

namespace ringtrain {

/// Returns the first of these signals that has arrived since the guard was made, else 0. Any thread may ask.
int requested_signal();

/// Returns "SIGTERM" and so on, for the signals above.
const char* signal_name(int signal);

/// Throws Error(interrupted) after SIGINT, Error(terminated) after another one: for work that saves nothing, and leaves
/// nothing when it unwinds.
void throw_if_signalled();

/// What a signal says as it comes. Texts of our own words, cut at 200 bytes; "": nothing.
struct SignalNotice {
  std::string_view program;  // "train"
  std::string_view first;    // what the first one brings about: "finishing step 8 and saving, up to 3m05s"
  std::string_view second;   // what is lost with the second SIGINT or SIGTERM: "the last checkpoint is that of step 5"
  bool saved = false;        // nothing: the second one's code is then that of the first
};
/// Makes this the notice from now on, copied. One thread of a process alone may do so; without a notice signals say
/// nothing.
void announce_signals(const SignalNotice& notice);

/// Installs the handlers, and puts back what was there before. An ignored SIGHUP (nohup) stays ignored.
class SignalGuard {
 public:
  /// Returns whether there is one.
  static bool lives();
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
};

/// While it lives, the signals above wait, and threads that are made meanwhile never see them. For libraries that do
/// not expect their calls to be interrupted.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_{};
};

/// Makes a program's signals what its callers rely on while there is no guard. Before the first guard a warning ends
/// the program with 143, as SIGTERM does; after it the program is ending, and a warning does nothing. SIGPIPE and
/// SIGXFSZ (a file beyond ulimit -f) are errors of the call that met them. Any other signal that ends a process from
/// outside still does, at once, and takes along what is half-written (framework/process/unfinished.h).
void set_program_signals();

}  // namespace ringtrain
