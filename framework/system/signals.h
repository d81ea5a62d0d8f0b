// SIGINT and SIGTERM ask a run to save and end; a second one ends the process at once, unsaved, with 130 or 143. The
// request is a flag that the run looks at between steps. One per process, while a SignalGuard lives.
#pragma once

namespace ringtrain {

/// Return SIGINT or SIGTERM if one has arrived since the guard was made, else 0. Any thread may ask.
int requested_signal();

/// Throws Error(128 + the signal) if one has arrived: for work that saves nothing, and leaves nothing when it unwinds.
void throw_if_signalled();

/// Installs the two handlers, and puts back what was there before.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
};

}  // namespace ringtrain
