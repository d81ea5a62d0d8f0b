// What a build without NCCL answers.
#include "parallel/nccl/nccl_communicator.h"

#if !RINGTRAIN_NCCL
namespace ringtrain {

void require_nccl_joins(Communicator&, Device, bool) {
  fail(ExitCode::usage, "mesh.backend nccl is not in this build; build with cmake --preset cuda where NCCL is found");
}

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& world, Stream& stream, double, bool share_gpu) {
  require_nccl_joins(world, stream.device(), share_gpu);
  return nullptr;
}

std::unique_ptr<Communicator> nccl_if_each_has_a_gpu(Communicator&, Stream&, double) {
  return nullptr;
}

}  // namespace ringtrain
#endif
