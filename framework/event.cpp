#include "framework/event.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#include "framework/cuda/event.h"
#endif

namespace ringtrain {

Event record_event([[maybe_unused]] const Stream& stream) {
#if RINGTRAIN_CUDA
  if (stream.on_cuda()) return cuda::record_event(stream.cuda().stream());
#endif
  return {};
}

void synchronize([[maybe_unused]] const Event& event) {
#if RINGTRAIN_CUDA
  if (event) static_cast<const cuda::Event*>(event.get())->synchronize();
#endif
}

}  // namespace ringtrain
