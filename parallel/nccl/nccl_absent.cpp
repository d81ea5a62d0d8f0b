// The NCCL functions of a build without NCCL.
#include "parallel/nccl/nccl_communicator.h"

#if !RINGTRAIN_NCCL
namespace ringtrain {

std::string nccl_refusal(Communicator&, Device, bool) {
  return "mesh.backend nccl is not in this build; build with cmake --preset cuda where NCCL is found";
}

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& world, Stream& stream, double, bool share_gpu) {
  fail(ExitCode::usage, "{}", nccl_refusal(world, stream.device(), share_gpu));
}

}  // namespace ringtrain
#endif
