// Starts threads. Only this file and system/run_aside.h do; tests/structure enforces it. The system may refuse to start
// one (ulimit -u, a container's limit on processes, ulimit -v): that is an error with a message, or the work is done
// without a thread. A new thread uses the GPU of the thread that starts it; otherwise it would create a context on GPU
// 0.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "framework/error.h"

namespace ringtrain {

/// Throws Error(code): `what` ("compute thread 3 of 8 of a rank") could not be started, and what to check.
[[noreturn]] void fail_start(ExitCode code, const std::string& what, const std::system_error& error);

/// Returns the GPU that the calling thread chose (framework/cuda/current_device.h), or -1.
int gpu_of_thread() noexcept;
/// Makes `gpu` the calling thread's GPU, unless it is -1.
void take_gpu(int gpu) noexcept;

/// Returns body for a new thread: it runs on the calling thread's GPU.
template <class Body>
auto on_own_gpu(Body body) {
  return [body = std::move(body), gpu = gpu_of_thread()]() mutable {
    take_gpu(gpu);
    return body();
  };
}

/// A thread that start_thread started. It must be joined before it is destroyed.
class Thread {
 public:
  void join() { thread_.join(); }

 private:
  template <class Body>
  friend Thread start_thread(ExitCode code, const std::string& what, Body body);
  explicit Thread(std::thread thread) : thread_(std::move(thread)) {}
  std::thread thread_;
};

/// Returns a thread that runs body. Throws Error(code) that names `what` if the system cannot start one.
template <class Body>
Thread start_thread(ExitCode code, const std::string& what, Body body) {
  try {
    return Thread(std::thread(on_own_gpu(std::move(body))));
  } catch (const std::system_error& error) {
    fail_start(code, what, error);
  }
}

}  // namespace ringtrain
