// Signals that ask a run to save and end. SIGINT and SIGTERM are requests of a person or a scheduler; the second one
// ends the process at once, without saving, with its own exit code. The others are warnings, several of which may
// arrive for one reason: a closed terminal (SIGHUP), the end of a job's time (SIGUSR1, as Slurm sends it), the end of
// CPU time (SIGXCPU, each second), a power failure (SIGPWR). They ask like SIGTERM and never end a process that is
// saving. The request is a flag that the run checks between steps. There is one per process, while a SignalGuard lives.
// A step may take minutes, so the handler itself prints what will happen (announce_signals).
#pragma once

#include <csignal>
#include <string_view>

namespace ringtrain {

/// Returns the first of these signals that has arrived since the guard was made, or 0. Any thread may call it.
int requested_signal();

/// Returns "SIGTERM" and so on for the signals above; for the SIGUSR1 with which scripts/launch passes on a signal, the
/// name of that script.
const char* signal_name(int signal);

/// Throws Error(interrupted) after SIGINT, and Error(terminated) after another signal: for work that saves nothing, and
/// leaves nothing behind when it unwinds.
void throw_if_signalled();

/// What a signal prints when it arrives. The texts are cut at 200 bytes; "" prints nothing.
struct SignalNotice {
  std::string_view program;  // "train"
  std::string_view first;    // what the first signal starts: "finishing step 8 and saving, up to 3m05s"
  std::string_view second;   // what the second SIGINT or SIGTERM loses: "the last checkpoint is that of step 5"
  bool saved = false;        // true: nothing is lost; the exit code of the second is then that of the first
};
/// Sets the notice from now on; it is copied. Only one thread of a process may call this. Without a notice, signals
/// print nothing.
void announce_signals(const SignalNotice& notice);

/// Installs the handlers, and restores the earlier ones at the end. An ignored SIGHUP (nohup) remains ignored.
class SignalGuard {
 public:
  /// Returns whether there is a guard.
  static bool lives();
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
};

/// While it lives, the signals above wait, and threads that start meanwhile never receive them. For libraries that do
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

/// Sets up a program's signals for the time without a guard, as its callers expect. Before the first guard, a warning
/// ends the program with 143, as SIGTERM does; after it, the program is ending, and a warning does nothing. SIGPIPE and
/// SIGXFSZ (a file that exceeds ulimit -f) are errors of the call that caused them. Any other signal that ends a
/// process from outside still does so, at once, and partial files are removed (framework/process/unfinished.h).
void set_program_signals();

}  // namespace ringtrain
