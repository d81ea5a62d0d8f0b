// Work beside the caller's, on a thread of its own. (Apart from threads.h, which nearly every unit sees: <future> is
// large.)
#pragma once

#include <future>
#include <type_traits>

#include "framework/threads.h"

namespace ringtrain {

/// Runs work on a thread of its own, or here and now if the system has none to give. Returns its result to come.
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
