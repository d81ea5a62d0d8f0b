#include "framework/stream.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#endif

namespace ringtrain {

void Stream::synchronize() const {
#if RINGTRAIN_CUDA
  if (cuda_ != nullptr) cuda_->synchronize();
#endif
}

}  // namespace ringtrain
