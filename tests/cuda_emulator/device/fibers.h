// A fiber: a function with its own stack that can suspend itself and be resumed later, from any host thread. The
// sanitizers are notified of every switch.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>

namespace cuda_emulator {

class Fiber {
 public:
  using Body = void (*)(void*);

  /// body(argument) starts at the first resume() and must never return.
  Fiber(Body body, void* argument);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs the fiber until it suspends itself.
  void resume();
  /// Called on the fiber: returns to the thread that resumed it.
  void suspend();

 private:
  Body body_;
  void* argument_;
  boost::context::fiber inside_;   // the fiber, while it is suspended
  boost::context::fiber outside_;  // the thread that resumed it, while it runs
  const void* stack_ = nullptr;    // lowest address
  std::size_t stack_bytes_ = 0;
  const void* outer_stack_ = nullptr;
  std::size_t outer_stack_bytes_ = 0;
  void* sanitizer_fiber_ = nullptr;
  void* sanitizer_outside_ = nullptr;
};

}  // namespace cuda_emulator
