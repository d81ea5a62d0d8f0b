#include "train/programs/program.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <cstdio>
#include <exception>
#include <new>
#include <optional>

#include "framework/error.h"

namespace ringtrain {

namespace {

/// Runs body. Return the error it ends with, if any; every exception counts as one.
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

/// Lets every block of 128 KiB and more go back to the system when it is freed. Left to itself, glibc keeps blocks up
/// to the size of the largest one freed so far, in as many heaps as threads once met in malloc: a long run's memory
/// then grows by the buffers of its saves, again and again.
void give_back_large_blocks() {
#if defined(__GLIBC__)
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
}

}  // namespace

int run_program(const char* name, const std::function<int()>& body) {
  give_back_large_blocks();
  int code = 0;
  const std::optional<Error> error = error_of([&] { code = body(); });
  if (!error) return code;
  std::fprintf(stderr, "%s: %s\n", name, error->what());
  return static_cast<int>(error->code());
}

int run_rank_program(const char* name, const std::function<int(Launcher& launcher)>& body) {
  return run_program(name, [&] {
    Launcher launcher = Launcher::from_environment();
    int code = 0;
    const std::optional<Error> error = error_of([&] {
      code = body(launcher);
      launcher.finish(code);
    });
    if (!error) return code;
    const Launcher::LastWords words = launcher.fail(*error);
    if (!words.told) return static_cast<int>(error->code());
    if (!words.calls.empty()) std::fprintf(stderr, "%s: what each rank did last:\n%s", name, words.calls.c_str());
    throw Error(*error);
  });
}

}  // namespace ringtrain
