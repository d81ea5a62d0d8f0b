#include "kernels/cuda/bounded_wait.cuh"

namespace ringtrain::cuda {

bool waits_are_bounded() {
#if defined(RINGTRAIN_BOUNDED_WAITS)
  return true;
#else
  return false;
#endif
}

}  // namespace ringtrain::cuda
