#include "framework/event.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#include "framework/cuda/event.h"
#endif

namespace ringtrain {

#if RINGTRAIN_CUDA
struct Event::Recorded {
  cuda::Event event;
};

void Event::record(Stream& stream) {
  if (!stream.on_cuda()) return;
  if (!event_) event_ = std::make_unique<Recorded>();
  event_->event.record(stream.cuda().stream());
}

void Event::wait() const {
  if (event_) event_->event.synchronize();
}
#else
struct Event::Recorded {};

void Event::record(Stream&) {}
void Event::wait() const {}
#endif

Event::Event() = default;
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

}  // namespace ringtrain
