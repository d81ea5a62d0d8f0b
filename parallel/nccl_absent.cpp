// What a build without NCCL answers.
#include "parallel/nccl_communicator.h"

#if !RINGTRAIN_NCCL
namespace ringtrain {

bool built_with_nccl() {
  return false;
}

bool each_has_a_gpu(Communicator&, const Stream&) {
  return false;
}

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator>, Stream&, double) {
  fail(ExitCode::usage, "mesh.backend nccl is not in this build; build with cmake --preset cuda where NCCL is found");
}

}  // namespace ringtrain
#endif
