// Runs work concurrently with the caller, on a new thread. (Separate from threads.h, which nearly every unit includes,
// because <future> is large.)
#pragma once

#include <future>
#include <type_traits>

#include "framework/threads.h"

namespace ringtrain {

/// Runs work on a new thread, or immediately on this one if the system cannot start one. Returns its future result.
template <class Work>
auto run_aside(Work work) -> std::future<std::invoke_result_t<Work>> {
  try {
    return std::async(std::launch::async, on_own_gpu(work));
  } catch (const std::system_error&) {
    std::packaged_task<std::invoke_result_t<Work>()> task(std::move(work));
    auto result = task.get_future();
    task();
    return result;
  }
}

}  // namespace ringtrain
