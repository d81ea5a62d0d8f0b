// Threads where the system may have none to give (ulimit -u, a container's limit on processes, ulimit -v): an error
// with a sentence, or work that is done without one.
#pragma once

#include <fmt/format.h>

#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "framework/error.h"

namespace ringtrain {

/// Throws Error(code): `what` ("compute thread 3 of 8 of a rank") could not be started, and what to look at.
[[noreturn]] inline void fail_start(ExitCode code, const std::string& what, const std::system_error& error) {
  fail(code,
       "cannot start {}: {}; ask for fewer, or raise the limit on processes and threads (ulimit -u, a container's "
       "limit) or on memory (ulimit -v)",
       what, error.code().message());
}

/// Returns a thread that runs body. Throws Error(code) that names `what` if the system has none to give.
template <class Body>
std::thread start_thread(ExitCode code, const std::string& what, Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    fail_start(code, what, error);
  }
}

/// Runs work on a thread of its own, or here and now if the system has none to give. Returns its result to come.
template <class Work>
auto run_aside(Work work) -> std::future<std::invoke_result_t<Work>> {
  try {
    return std::async(std::launch::async, work);
  } catch (const std::system_error&) {
    std::packaged_task<std::invoke_result_t<Work>()> task(std::move(work));
    auto result = task.get_future();
    task();
    return result;
  }
}

}  // namespace ringtrain
