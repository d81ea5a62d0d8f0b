#include "framework/system/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "framework/error.h"

namespace ringtrain {

namespace {

// A handler can reach nothing but globals. Lock-free atomics are safe inside one.
std::atomic<int> requested{0};
static_assert(std::atomic<int>::is_always_lock_free);
struct sigaction previous_interrupt, previous_terminate;
std::atomic<bool> installed{false};

extern "C" void on_signal(int signal) {
  int none = 0;
  if (!requested.compare_exchange_strong(none, signal)) _exit(128 + signal);  // 130, 143
}

}  // namespace

int requested_signal() {
  return requested.load();
}

void throw_if_signalled() {
  if (const int signal = requested_signal(); signal != 0) {
    fail(static_cast<ExitCode>(128 + signal), "stopped by signal {}; nothing was written", signal);
  }
}

SignalGuard::SignalGuard() {
  ensure(!installed.exchange(true), "one SignalGuard at a time");
  requested = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // a read or write that is under way goes on
  sigemptyset(&action.sa_mask);
  // Neither signal interrupts the other's handler.
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  sigaction(SIGINT, &action, &previous_interrupt);
  sigaction(SIGTERM, &action, &previous_terminate);
}

SignalGuard::~SignalGuard() {
  sigaction(SIGINT, &previous_interrupt, nullptr);
  sigaction(SIGTERM, &previous_terminate, nullptr);
  installed = false;
}

}  // namespace ringtrain
