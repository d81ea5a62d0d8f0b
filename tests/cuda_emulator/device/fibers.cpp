// Fibers on Boost.Context, with the notifications that AddressSanitizer and ThreadSanitizer require at each switch.
#include "device/fibers.h"

#include <boost/context/preallocated.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <memory>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace cuda_emulator {

namespace {

// Kernels keep their tiles in registers, which are stack frames here; only touched pages cost memory.
constexpr std::size_t stack_bytes = std::size_t{512} << 10;

// Called before a switch to the stack [bottom, bottom + bytes); the state to keep of this one is stored in *kept.
void leave([[maybe_unused]] void** kept, [[maybe_unused]] const void* bottom, [[maybe_unused]] std::size_t bytes,
           [[maybe_unused]] void* to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(kept, bottom, bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to, 0);
#endif
}

// Called after a switch, with the kept state of the resumed stack; outputs the previous stack.
void arrive([[maybe_unused]] void* kept, [[maybe_unused]] const void** bottom, [[maybe_unused]] std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(kept, bottom, bytes);
#endif
}

}  // namespace

Fiber::Fiber(Body body, void* argument) : body_(body), argument_(argument) {
  boost::context::protected_fixedsize_stack allocator(stack_bytes);
  const boost::context::stack_context stack = allocator.allocate();
  // Stacks that all ended at the same offset in a page would share a few cache lines.
  static std::size_t made = 0;
  const std::size_t shift = ++made % 64 * 1088;
  stack_ = static_cast<const char*>(stack.sp) - stack.size;
  stack_bytes_ = stack.size - shift;
#if defined(__SANITIZE_THREAD__)
  sanitizer_fiber_ = __tsan_create_fiber(0);
#endif
  inside_ = boost::context::fiber(
      std::allocator_arg, boost::context::preallocated(static_cast<char*>(stack.sp) - shift, stack.size - shift, stack),
      allocator, [this](boost::context::fiber&& outside) {
        arrive(nullptr, &outer_stack_, &outer_stack_bytes_);
        outside_ = std::move(outside);
        body_(argument_);
        return std::move(outside_);
      });
}

void Fiber::resume() {
  void* kept = nullptr;
#if defined(__SANITIZE_THREAD__)
  sanitizer_outside_ = __tsan_get_current_fiber();
#endif
  leave(&kept, stack_, stack_bytes_, sanitizer_fiber_);
  inside_ = std::move(inside_).resume();
  arrive(kept, nullptr, nullptr);
}

void Fiber::suspend() {
  void* kept = nullptr;
  leave(&kept, outer_stack_, outer_stack_bytes_, sanitizer_outside_);
  outside_ = std::move(outside_).resume();
  arrive(kept, &outer_stack_, &outer_stack_bytes_);
}

}  // namespace cuda_emulator
