#include "train/engine/computation.h"

#include "framework/config/config.h"
#include "framework/config/config_problems.h"
#include "framework/device.h"
#include "framework/error.h"

namespace ringtrain {

void set_computation(Config& config, const Computation& asked, std::int64_t data, std::int64_t sequence) {
  TrainingConfig& training = config.training;
  const auto& [device, dtype, shard_weights, threads, share_gpu] = asked;
  bool known = dtype.empty();
  for (const DType type : {DType::float32, DType::float64, DType::bfloat16}) {
    if (dtype != name_of(type)) continue;
    training.dtype = type;
    known = true;
  }
  if (!known) fail(ExitCode::usage, "--dtype {}: must be float32, float64 or bfloat16", excerpt(dtype));
  if (device != "auto" && device != "cpu" && device != "cuda") {
    fail(ExitCode::usage, "--device {}: must be cpu, cuda or auto", excerpt(device));
  }
  if (device == "auto" && !built_with_cuda) training.device = Device::Kind::cpu;
  if (device != "auto") training.device = device == "cuda" ? Device::Kind::cuda : Device::Kind::cpu;
  if (training.device == Device::Kind::cuda && !built_with_cuda) {
    fail(ExitCode::usage, "--device cuda: this program was built without CUDA; build it with cmake --preset cuda");
  }
  if (training.device == Device::Kind::cuda && training.dtype == DType::float64) {
    fail(ExitCode::usage, "float64 (training.dtype, or --dtype) needs --device cpu; on a GPU use --dtype float32");
  }
  training.offload = Offload::none;
  if (shard_weights) training.shard = Shard::weights;
  config.mesh.data = data;
  config.mesh.sequence = sequence;
  config.mesh.threads_per_rank = threads;
  config.mesh.backend = Backend::automatic;
  config.mesh.share_gpu = share_gpu;
}

}  // namespace ringtrain
