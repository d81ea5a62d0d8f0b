// Signals that ask a run to save and end. SIGINT and SIGTERM are requests of a person or a scheduler; the second of
// them ends the process at once, unsaved, with 130 or 143. The others are warnings, of which several may come for one
// reason: a closed terminal (SIGHUP), the end of a job's time (SIGUSR1, as Slurm sends it), the end of CPU time
// (SIGXCPU, each second), a power failure (SIGPWR). They ask like SIGTERM and never end a process that saves.
// The request is a flag that the run looks at between steps. One per process, while a SignalGuard lives.
#pragma once

#include <csignal>

namespace ringtrain {

/// Returns the first of these signals that has arrived since the guard was made, else 0. Any thread may ask.
int requested_signal();

/// Returns "SIGTERM" and so on, for the signals above.
const char* signal_name(int signal);

/// Throws Error(interrupted) after SIGINT, Error(terminated) after another one: for work that saves nothing, and leaves
/// nothing when it unwinds.
void throw_if_signalled();

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
