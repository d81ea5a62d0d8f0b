#include "train/programs/program.h"

#if defined(__GLIBC__)
#include <malloc.h>
#include <sys/resource.h>
#endif

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>

#include "framework/error.h"
#include "framework/standard_streams.h"
#include "framework/storage/files.h"
#include "framework/system/signals.h"

namespace ringtrain {

namespace {

/// Runs body. Returns the error with which it ends, if any; every exception counts as one.
std::optional<Error> error_of(const std::function<void()>& body) {
  try {
    body();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ExitCode::internal, "internal error: the machine has no more memory");
  } catch (const std::exception& error) {
    return Error(ExitCode::internal, fmt::format("internal error: {}", error.what()));
  }
}

/// Makes every freed block of 128 KiB and more go back to the system. Otherwise, glibc keeps blocks up to the size of
/// the largest one freed so far, in as many heaps as there were threads in malloc at the same time: a long run's memory
/// would then grow by its saves' buffers again and again.
/// If address space is limited (ulimit -v), all threads share one heap: glibc would reserve 64 MiB for each thread's
/// own, and, if the limit does not allow that, take a whole page for every small block.
void set_up_heap() {
#if defined(__GLIBC__)
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
  rlimit address_space{};
  if (::getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY) {
    ::mallopt(M_ARENA_MAX, 1);
  }
#endif
}

}  // namespace

std::string command_prefix() {
  const std::string called = program_invocation_name;
  const std::string name = file_name(called);
  if (called.find("/libexec/") != std::string::npos) return "ringtrain ";  // an installed program starts this one
  return name == "ringtrain" ? called + " " : called.substr(0, called.size() - name.size());
}

int run_program(const char* name, const std::function<int()>& body) {
  claim_standard_streams();
  set_program_signals();
  set_up_heap();
  // If a process's ranks are threads, it uses 32 hardware queues of a GPU: each rank has about five streams, and in the
  // usual 8 queues, work that waits at the front of a queue delays the other streams behind it. CUDA reads this at its
  // first call.
  if (!Launcher::expects_processes()) ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int code = 0;
  const std::optional<Error> error = error_of([&] {
    code = body();
    flush_results();
  });
  if (!error) return code;
  write_message(stderr, fmt::format("{}: {}\n", name, error->what()));
  return static_cast<int>(error->code());
}

int run_rank_program(const char* name, const std::function<int(Launcher& launcher)>& body, OnSignal on_signal) {
  return run_program(name, [&] {
    // Ranks that are processes end together: a signal that one of them sees early waits until all have seen it.
    std::optional<SignalGuard> guard;
    std::optional<SignalsHeld> held;  // MPI does not complete its start if a signal interrupts it
    if (on_signal == OnSignal::save && Launcher::expects_processes()) {
      guard.emplace();
      held.emplace();
    }
    Launcher launcher = Launcher::from_environment();
    held.reset();
    int code = 0;
    const std::optional<Error> error = error_of([&] {
      code = body(launcher);
      flush_results();
      launcher.finish(code);
    });
    if (!error) return code;
    const ErrorReport report = launcher.fail(*error);
    if (!report.is_reporter) return static_cast<int>(report.code);
    if (!report.calls.empty()) {
      write_message(stderr, fmt::format("{}: what each rank did last:\n{}", name, report.calls));
    }
    throw Error(report.code, report.sentence);
  });
}

}  // namespace ringtrain
