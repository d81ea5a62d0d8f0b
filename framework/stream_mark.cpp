#include "framework/stream_mark.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#include "framework/cuda/event.h"
#endif

namespace ringtrain {

#if RINGTRAIN_CUDA
struct StreamMark::Event {
  cuda::Event event;
};

void StreamMark::record(Stream& stream) {
  if (!stream.on_cuda()) return;
  if (!event_) event_ = std::make_unique<Event>();
  event_->event.record(stream.cuda().stream());
}

void StreamMark::wait() const {
  if (event_) event_->event.synchronize();
}
#else
struct StreamMark::Event {};

void StreamMark::record(Stream&) {}
void StreamMark::wait() const {}
#endif

StreamMark::StreamMark() = default;
StreamMark::~StreamMark() = default;
StreamMark::StreamMark(StreamMark&&) noexcept = default;
StreamMark& StreamMark::operator=(StreamMark&&) noexcept = default;

}  // namespace ringtrain
