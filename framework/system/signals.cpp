#include "framework/system/signals.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "framework/error.h"
#include "framework/process/unfinished.h"
#include "framework/standard_streams.h"

namespace ringtrain {

namespace {

struct Request {
  int signal;
  const char* name;
};
// A second one of the first two ends the process; the others are warnings.
constexpr std::array<Request, 6> requests{{{SIGINT, "SIGINT"},
                                           {SIGTERM, "SIGTERM"},
                                           {SIGHUP, "SIGHUP"},
                                           {SIGUSR1, "SIGUSR1"},
                                           {SIGXCPU, "SIGXCPU"},
                                           {SIGPWR, "SIGPWR"}}};

// A handler can only access globals. Lock-free atomics are safe inside one.
std::atomic<int> requested{0};
std::atomic<bool> insisted{false};  // SIGINT or SIGTERM has arrived
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
std::array<struct sigaction, requests.size()> previous;
std::atomic<bool> installed{false};
const bool launched = std::getenv("RINGTRAIN_LAUNCHED") != nullptr;  // by scripts/launch, which passes on signals

/// A text of bounded length, assembled without an allocation.
template <std::size_t capacity>
class FixedText {
 public:
  FixedText& operator+=(std::string_view added) {
    const std::size_t bytes = std::min(added.size(), capacity - size_);
    std::copy_n(added.data(), bytes, bytes_.data() + size_);
    size_ += bytes;
    return *this;
  }
  std::string_view view() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, capacity> bytes_{};
  std::size_t size_ = 0;
};

/// A notice as the handler reads it.
struct KeptNotice {
  FixedText<200> program, first, second;
  bool saved = false, on_terminal = false;
};
// One is printed while the other is filled, after all handlers that may read it have copied it.
std::array<KeptNotice, 2> notices;
std::atomic<const KeptNotice*> notice_to_print{nullptr};
std::atomic<int> copying{0};  // handlers that copy a notice now

/// Writes "train: SIGINT: TEXT"; on a terminal in a line of its own, wherever the cursor is.
void tell(const KeptNotice& notice, int signal, std::string_view text, std::string_view ending) {
  if (text.empty()) return;
  FixedText<640> line;
  if (notice.on_terminal) line += "\n";
  ((((line += notice.program.view()) += ": ") += signal_name(signal)) += ": ") += text;
  (line += ending) += "\n";
  write_in_handler(line.view());
}

extern "C" void on_signal(int signal) {
  const bool insists = signal == SIGINT || signal == SIGTERM;
  ++copying;
  const KeptNotice* const current = notice_to_print.load();
  const KeptNotice notice = current != nullptr ? *current : KeptNotice{};
  --copying;
  if (insists && insisted.exchange(true)) {
    remove_unfinished();
    tell(notice, signal, notice.second.view(), "");
    _exit(notice.saved ? 128 + signal : static_cast<int>(ExitCode::unsaved));
  }
  int none = 0;
  if (!requested.compare_exchange_strong(none, signal) && !insists) return;
  tell(notice, signal, notice.first.view(),
       insists ? "; press Ctrl-C or send SIGTERM again to end without saving" : "");
}

std::atomic<bool> guarded{false};  // there has been a guard: its run has ended or will end

extern "C" void on_early_warning(int) {
  if (guarded) return;
  remove_unfinished();
  _exit(static_cast<int>(ExitCode::terminated));
}

/// Ends the process as the signal would have, but removes unfinished files first.
extern "C" void on_end(int signal) {
  remove_unfinished();
  std::signal(signal, SIG_DFL);
  raise(signal);  // blocked until this handler returns
}

/// Returns whether the process that started this one wants it to outlive its terminal (nohup).
bool stays_ignored(int signal) {
  struct sigaction now {};
  return signal == SIGHUP && sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

int requested_signal() {
  return requested.load();
}

const char* signal_name(int signal) {
  for (const Request& request : requests) {
    if (request.signal == signal) return signal == SIGUSR1 && launched ? "scripts/launch" : request.name;
  }
  return "a signal";
}

void throw_if_signalled() {
  if (const int signal = requested_signal(); signal != 0) {
    fail(signal == SIGINT ? ExitCode::interrupted : ExitCode::terminated, "stopped by {}; nothing was written",
         signal_name(signal));
  }
}

void announce_signals(const SignalNotice& notice) {
  KeptNotice& spare = notice_to_print.load() == notices.data() ? notices[1] : notices[0];
  while (copying != 0) std::this_thread::yield();
  spare = {};
  spare.program += notice.program;
  spare.first += notice.first;
  spare.second += notice.second;
  spare.saved = notice.saved;
  spare.on_terminal = ::isatty(STDERR_FILENO) == 1;
  notice_to_print = &spare;
}

SignalGuard::SignalGuard() {
  ensure(!installed.exchange(true), "one SignalGuard at a time");
  requested = 0;
  insisted = false;
  guarded = true;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // a pending read or write continues
  sigemptyset(&action.sa_mask);
  for (const Request& request : requests) sigaddset(&action.sa_mask, request.signal);  // one handler at a time
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const int signal = requests[i].signal;
    sigaction(signal, stays_ignored(signal) ? nullptr : &action, &previous[i]);
  }
}

SignalGuard::~SignalGuard() {
  for (std::size_t i = 0; i < requests.size(); ++i) sigaction(requests[i].signal, &previous[i], nullptr);
  requested = 0;
  notice_to_print = nullptr;
  installed = false;
}

bool SignalGuard::lives() {
  return installed;
}

SignalsHeld::SignalsHeld() {
  sigset_t held;
  sigemptyset(&held);
  for (const Request& request : requests) sigaddset(&held, request.signal);
  pthread_sigmask(SIG_BLOCK, &held, &before_);
}

SignalsHeld::~SignalsHeld() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void set_program_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  for (const Request& request : requests) {
    if (request.signal == SIGINT || request.signal == SIGTERM || stays_ignored(request.signal)) continue;
    std::signal(request.signal, on_early_warning);
  }
  std::vector<int> ending{SIGINT, SIGTERM, SIGQUIT, SIGALRM, SIGUSR2, SIGVTALRM, SIGPROF, SIGIO, SIGSTKFLT};
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) ending.push_back(signal);
  for (const int signal : ending) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;  // somebody set a handler
    action.sa_handler = on_end;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace ringtrain
